"""Tokens: which are good, and that every other one is refused the same way everywhere."""

import base64
import json
from typing import Any

import jwt
import pytest

from tests.routes.conftest import Api, assert_problem, token


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = (json.dumps(part).encode() for part in (header, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


async def refused(api: Api, authorization: str) -> None:
    for path in ("/v1/me", "/v1/events"):
        answer = await api.http.get(path, headers={"Authorization": authorization})
        assert_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"exp": 1e400},
        {"exp": [1]},
        {"iss": "somebody"},
        {"iss": None},
        {"aud": "something"},
        {"aud": None},
        {"aud": 7},
        {"role": None},
        {"role": "root"},
        {"role": ["fan"]},
        {"role": {"fan": 1}},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 129},
        {"sub": "fan\0one"},
        {"sub": "fan\ud800"},
        {"nbf": 2**33},
    ],
    ids=str,
)
async def test_a_token_with_a_bad_claim_is_refused_even_where_none_is_needed(
    api: Api, claims: dict[str, Any]
) -> None:
    await refused(api, f"Bearer {token(api.settings, 'fan_one', 'fan', **claims)}")


async def test_a_token_not_signed_by_us_is_refused(api: Api) -> None:
    claims = jwt.decode(token(api.settings, "fan_one", "fan"), options={"verify_signature": False})
    for forged in (
        unsigned({"alg": "none", "typ": "JWT"}, claims),
        unsigned({"alg": "HS256", "typ": "JWT"}, claims) + "AAAA",
        jwt.encode(claims, "another secret of thirty-two bytes", "HS256"),
        jwt.encode(claims, api.settings.jwt_secret * 2, "HS384"),
        jwt.encode(claims, api.settings.jwt_secret * 2, "HS512"),
        "",
        "x",
        "a.b.c",
        "é.é.é".encode().decode("latin-1"),
        base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("=") + ".e30.AAAA",
    ):
        for scheme in ("Bearer", "bearer"):
            answer = await api.http.get(
                "/v1/me", headers=[(b"authorization", f"{scheme} {forged}".encode("latin-1"))]
            )
            assert_problem(answer, 401, "unauthenticated")


async def test_a_good_token_under_another_scheme_is_refused(api: Api) -> None:
    good = token(api.settings, "fan_one", "fan")
    await refused(api, f"Basic {good}")
    await refused(api, good)
    await refused(api, "")


async def test_the_scheme_is_read_without_case_and_the_longest_subject_is_taken(api: Api) -> None:
    good = token(api.settings, "x" * 128, "fan")
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = await api.http.get("/v1/me", headers={"Authorization": f"{scheme} {good}"})
        assert answer.status_code == 200
        assert answer.json()["fanId"] == "x" * 128


async def test_who_may_not_ask_is_told_so_before_the_body_is_looked_at(api: Api) -> None:
    answer = await api.http.post("/v1/orders", content=b"{", headers=api.as_organiser)
    assert_problem(answer, 403, "forbidden")
