"""Tokens of another issuer: the good ones, and that every other one is refused."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import jwt
import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey

from tests.routes.conftest import Api, assert_problem, running, token
from ticketing.api import issuer as issuers
from ticketing.api.application import create_application
from ticketing.mongo import Client
from ticketing.settings import Settings, SettingsError

NAME = "https://people.example.org"
ROLES = "*=fan,staff=organiser,boss=admin"


@dataclass
class LocalIssuer:
    """An HTTP server with the keys of an issuer."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    asked: int = 0
    answer: bytes | None = None

    def sign(self, key: Any = None, algorithm: str = "RS256", /, **changes: Any) -> str:
        """A token by the first key, with changed claims; `kid` and `alg` change its header."""
        name = next(iter(self.keys))
        header = {"kid": changes.pop("kid", name)}
        if header["kid"] is None:
            del header["kid"]
        now = int(time.time())
        claims = {
            "iss": NAME,
            "aud": "tickets",
            "sub": "zoe",
            "iat": now,
            "exp": now + 600,
        } | changes
        present = {claim: value for claim, value in claims.items() if value is not None}
        pem = (key or self.keys[name]).as_pem(private=True)
        return jwt.encode(present, pem, algorithm, headers=header)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        keys = [key.as_dict(private=False) | {"kid": name} for name, key in self.keys.items()]
        body = self.answer if self.answer is not None else json.dumps({"keys": keys}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def local() -> AsyncIterator[LocalIssuer]:
    made = LocalIssuer(keys={"first": RSAKey.generate_key(2048)})
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    yield made
    server.close()


Ask = Callable[..., Any]


@asynccontextmanager
async def served(settings: Settings, client: Client) -> AsyncIterator[Ask]:
    application = create_application(settings, client)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with (
        running(application),
        httpx.AsyncClient(transport=transport, base_url="http://testserver") as http,
    ):

        async def ask(bearer: str, path: str = "/v1/me") -> httpx.Response:
            return await http.get(path, headers={"Authorization": f"Bearer {bearer}"})

        yield ask


@pytest.fixture
async def ask(settings: Settings, client: Client, local: LocalIssuer) -> AsyncIterator[Ask]:
    async with served(with_issuer(settings, local), client) as asking:
        yield asking


def with_issuer(settings: Settings, local: LocalIssuer, **changes: Any) -> Settings:
    given = {
        "oidc_issuer": NAME,
        "oidc_audience": "tickets",
        "oidc_jwks_url": local.url,
        "oidc_role_claim": "groups",
        "oidc_roles": ROLES,
    }
    return replace(settings, **given | changes)


async def test_whom_the_issuer_knows_gets_in_with_the_role_of_their_claim(
    ask: Ask, local: LocalIssuer
) -> None:
    me = await ask(local.sign(groups=["anything"]))
    assert (me.status_code, me.json()["fanId"]) == (200, "zoe")
    assert (await ask(local.sign())).status_code == 200
    for groups, status in (("staff", 200), (["x", "staff"], 200), ("boss", 200), ("x", 403)):
        assert (await ask(local.sign(groups=groups), "/v1/team")).status_code == status
    assert (await ask(local.sign(aud=["other", "tickets"]))).status_code == 200
    assert local.asked == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": -1},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": +600},
        {"iat": +600},
        {"iss": "https://people.example.com"},
        {"iss": f"{NAME}/"},
        {"iss": None},
        {"aud": "ticket"},
        {"aud": None},
        {"aud": []},
        {"sub": None},
        {"sub": ""},
        {"sub": "a\0b"},
        {"sub": 7},
        {"kid": "second"},
        {"kid": None},
        {"kid": ""},
        {"kid": "../first"},
    ],
    ids=str,
)
async def test_a_token_with_a_bad_claim_or_key_name_is_refused(
    ask: Ask, local: LocalIssuer, changes: dict[str, Any]
) -> None:
    # Instants are given from now on.
    instants = {
        name: int(time.time()) + value
        for name, value in changes.items()
        if name in ("exp", "nbf", "iat") and isinstance(value, int)
    }
    answer = await ask(local.sign(**changes | instants))
    assert_problem(answer, 401, "unauthenticated")


def _encoded(part: Any) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


async def test_a_token_by_another_algorithm_or_key_is_refused(
    ask: Ask, settings: Settings, local: LocalIssuer
) -> None:
    good = local.sign()
    claims, first = good.split(".")[1], local.keys["first"]
    secrets = [
        first.as_pem(private=False),
        json.dumps(first.as_dict(private=False)).encode(),
        first.as_pem(private=False).strip(),
    ]
    confused = []
    for secret in secrets:
        signing = f"{_encoded({'alg': 'HS256', 'kid': 'first'})}.{claims}".encode()

        digest = hmac.new(secret, signing, hashlib.sha256).digest()
        confused.append(f"{signing.decode()}.{_encoded(digest)}")
    stranger = RSAKey.generate_key(2048)
    for forged in (
        *confused,
        f"{_encoded({'alg': 'none', 'kid': 'first'})}.{claims}.",
        f"{_encoded({'alg': 'none', 'kid': 'first'})}.{claims}.{good.split('.')[2]}",
        f"{_encoded({'alg': 'RS256', 'kid': ['first']})}.{claims}.{good.split('.')[2]}",
        f"{_encoded(b'[' * 3_000)}.{claims}.AAAA",
        local.sign(stranger),
        local.sign(first, "RS512"),
        local.sign(first, "PS256"),
        jwt.encode(
            jwt.decode(good, options={"verify_signature": False}),
            stranger.as_pem(private=True),
            "RS256",
            headers={"kid": "first", "jwk": stranger.as_dict(private=False)},
        ),
        jwt.encode(
            jwt.decode(good, options={"verify_signature": False}),
            stranger.as_pem(private=True),
            "RS256",
            headers={"kid": "first", "jku": "http://127.0.0.1:1/"},
        ),
        good[:-4],
        f"{good}.x",
        "x" * 20_000,
        "",
        token(settings, "fan_one", "fan"),
    ):
        assert_problem(await ask(forged), 401, "unauthenticated")
    assert (await ask(good)).status_code == 200


@pytest.mark.parametrize(
    ("algorithm", "made"),
    [
        ("PS256", lambda: RSAKey.generate_key(2048)),
        ("ES256", lambda: ECKey.generate_key("P-256")),
    ],
)
async def test_another_algorithm_may_be_pinned(
    settings: Settings, client: Client, local: LocalIssuer, algorithm: str, made: Callable[[], Any]
) -> None:
    rsa = local.keys["first"]
    key = made()
    local.keys = {"first": key, "second": rsa}
    async with served(with_issuer(settings, local, oidc_algorithm=algorithm), client) as ask:
        assert (await ask(local.sign(key, algorithm))).status_code == 200
        assert (await ask(local.sign(rsa, "RS256", kid="second"))).status_code == 401


async def test_a_new_key_is_taken_once_a_token_names_it_and_an_old_one_no_more(
    ask: Ask, local: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuers, "ASKED_AGAIN_SECONDS", 0.0)
    old = local.sign()
    assert (await ask(old)).status_code == 200
    local.keys = {"second": RSAKey.generate_key(2048)}
    assert (await ask(local.sign())).status_code == 200
    assert_problem(await ask(old), 401, "unauthenticated")


async def test_made_up_key_names_do_not_reach_the_issuer_one_by_one(
    ask: Ask, local: LocalIssuer
) -> None:
    answers = await asyncio.gather(*(ask(local.sign(kid=f"key {n}")) for n in range(50)))
    assert {answer.status_code for answer in answers} == {401}
    assert local.asked == 1


async def test_while_the_issuer_is_away_its_last_keys_count_and_not_for_ever(
    ask: Ask, local: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await ask(local.sign())).status_code == 200
    monkeypatch.setattr(issuers, "KEYS_SECONDS", 0.0)
    monkeypatch.setattr(issuers, "ASKED_AGAIN_SECONDS", 0.0)
    for odd in (b"", b"{", b"[]", b'{"keys": []}', b'{"keys": 7}', b"x" * 300_000):
        local.answer = odd
        assert (await ask(local.sign())).status_code == 200
    monkeypatch.setattr(issuers, "STALE_SECONDS_MAX", 0.0)
    assert_problem(await ask(local.sign()), 503, "unavailable")


async def test_keys_that_are_not_for_signatures_by_our_algorithm_are_left_aside(
    settings: Settings, client: Client, local: LocalIssuer
) -> None:
    key = local.keys["first"]
    public = key.as_dict(private=False)
    local.answer = json.dumps(
        {
            "keys": [
                public | {"kid": "encrypts", "use": "enc"},
                public | {"kid": "other", "alg": "RS512"},
                OctKey.generate_key(256).as_dict() | {"kid": "shared"},
                {"kid": "broken", "kty": "RSA", "n": "x"},
                {"kty": "RSA"},
                7,
                public | {"kid": "first", "alg": "RS256", "use": "sig"},
            ]
        }
    ).encode()
    async with served(with_issuer(settings, local), client) as ask:
        assert (await ask(local.sign())).status_code == 200
        for name in ("encrypts", "other", "shared", "broken"):
            assert (await ask(local.sign(key, kid=name))).status_code == 401


async def test_with_an_issuer_we_know_no_passwords(
    settings: Settings, client: Client, local: LocalIssuer, api: Api
) -> None:
    async with served(with_issuer(settings, local), client) as ask:
        for path in ("/v1/sessions", "/v1/accounts", "/v1/guests", "/account"):
            assert (await ask(local.sign(), path)).status_code == 404


async def test_an_api_key_is_good_beside_an_issuer(
    settings: Settings, client: Client, local: LocalIssuer, api: Api
) -> None:
    made = await api.http.post(
        "/v1/api-keys", json={"name": "x", "scope": "viewer"}, headers=api.as_organiser
    )
    async with served(with_issuer(settings, local), client) as ask:
        assert (await ask(made.json()["key"], "/v1/statements")).status_code == 200


@pytest.mark.parametrize(
    "environment",
    [
        {"TICKETING_OIDC_ISSUER": NAME},
        {"TICKETING_OIDC_AUDIENCE": "x", "TICKETING_OIDC_JWKS_URL": "https://x.example/"},
        {
            "TICKETING_OIDC_ISSUER": NAME,
            "TICKETING_OIDC_AUDIENCE": "x",
            "TICKETING_OIDC_JWKS_URL": "ftp://x.example/",
        },
        {"TICKETING_OIDC_ALGORITHM": "HS256"},
        {"TICKETING_OIDC_ALGORITHM": "none"},
        {"TICKETING_OIDC_ROLES": "staff=root"},
        {"TICKETING_OIDC_ROLES": "staff"},
        {"TICKETING_TRUSTED_PROXIES": "10.0.0.1/8"},
        {"TICKETING_TRUSTED_PROXIES": "everybody"},
        {"TICKETING_RATE_LIMITS": "maybe"},
    ],
    ids=str,
)
def test_settings_that_can_not_be_are_named(environment: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"^TICKETING_"):
        Settings.from_environment(environment)
