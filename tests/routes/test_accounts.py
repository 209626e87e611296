"""Accounts: asked for, confirmed, logged in to, lost and found, and never told of."""

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from tests.mail_server import MailServer, mail_server, parts
from tests.routes.conftest import Api, Json, assert_invalid, assert_problem, event_body, token
from ticketing import access_tokens, clock, outbox, second_factors, sessions, signed_links
from ticketing.account_mails import AccountMails
from ticketing.api import limits
from ticketing.mails import Mails
from ticketing.mongo import Client
from ticketing.rate_limits import Policy
from ticketing.smtp import Smtp

EMAIL = "Zoë.Åström@example.org"
PASSWORD = "a rather long password"
ADA: Json = {"email": EMAIL, "password": PASSWORD, "name": "Zoë", "role": "fan"}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test signs in more often than a person."""
    monkeypatch.setattr(limits, "SIGN_IN_ACCOUNT", Policy("sign-in-account", 1_000, 60))
    monkeypatch.setattr(limits, "SIGN_IN_ADDRESS", Policy("sign-in-address", 1_000, 60))


@pytest.fixture
async def post_box() -> AsyncIterator[MailServer]:
    async with mail_server() as running:
        yield running


async def mails(api: Api, client: Client, post_box: MailServer) -> list[tuple[str, str, str]]:
    """Everything mailed by now: to whom, about what, and the text."""
    settings = post_box.settings(api.settings)
    post = Smtp(settings)
    consumers = [
        AccountMails(client.database, settings, post),
        Mails(client.database, settings, post),
    ]
    while await outbox.spread(client.database, consumers, clock.now()):
        pass
    for consumer in consumers:
        for delivery in await outbox.take(client.database, consumer.name, clock.now(), 50):
            await outbox.deliver(client.database, consumer, delivery, clock.now())
    await post.close()
    taken = [(to, str(mail["Subject"]), parts(mail)[0]) for to, mail in post_box.taken]
    post_box.taken.clear()
    return taken


async def mailed_link(api: Api, client: Client, post_box: MailServer) -> str:
    [(_, _, text)] = await mails(api, client, post_box)
    [link] = re.findall(r"#\w+=(\S+)", text)
    return link


async def asked(api: Api, path: str, **body: Any) -> None:
    answer = await api.http.post(f"/v1/accounts{path}", json=body)
    assert (answer.status_code, answer.json()) == (202, {"status": "checkYourMail"}), answer.text


async def account(api: Api, client: Client, post_box: MailServer, **changes: Any) -> Json:
    """A confirmed account, logged in."""
    body = ADA | changes
    await asked(api, "", **body)
    link = await mailed_link(api, client, post_box)
    answer = await api.http.post(
        "/v1/accounts/confirm", json={"link": link, "password": body["password"]}
    )
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def log_in(api: Api, **changes: Any) -> httpx.Response:
    body = {"email": EMAIL, "password": PASSWORD} | changes
    return await api.http.post("/v1/sessions", json=body)


def bearing(logged_in: Json) -> dict[str, str]:
    return {"Authorization": f"Bearer {logged_in['accessToken']}"}


async def test_a_fan_registers_confirms_by_mail_and_is_known(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    assert made["accountId"].startswith("fan_")
    assert made["expiresIn"] == 900
    me = (await api.http.get("/v1/me", headers=bearing(made))).json()
    assert (me["fanId"], me["name"]) == (made["accountId"], "Zoë")
    again = await log_in(api, email=EMAIL.upper())
    assert again.status_code == 201
    assert again.json()["accountId"] == made["accountId"]


async def test_an_organiser_registers_and_makes_an_event(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box, role="organiser")
    assert made["accountId"].startswith("org_")
    team = await api.http.get("/v1/team", headers=bearing(made))
    assert team.status_code == 200
    assert (await api.http.get("/v1/me", headers=bearing(made))).status_code == 403


async def test_nobody_registers_as_an_admin(api: Api) -> None:
    for role in ("admin", "gate"):
        assert_invalid(await api.http.post("/v1/accounts", json=ADA | {"role": role}), "role")


async def test_odd_registrations_are_refused_by_their_path(api: Api, client: Client) -> None:
    for changes, path in (
        ({"email": "nobody"}, "email"),
        ({"email": "a@b@c.org"}, "email"),
        ({"email": "a\n@example.org"}, "email"),
        ({"password": "short"}, "password"),
        ({"password": "x" * 201}, "password"),
        ({"password": "aaaaaaaaaaaa"}, "password"),
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"language": "xx"}, "language"),
    ):
        assert_invalid(await api.http.post("/v1/accounts", json=ADA | changes), path)
    assert await client.database.account_requests.count_documents({}) == 0


async def test_before_it_is_confirmed_there_is_no_account(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await asked(api, "", **ADA)
    assert_problem(await log_in(api), 401, "unauthenticated")
    link = await mailed_link(api, client, post_box)
    for wrong in ({"link": link, "password": "another password"}, {"link": link, "password": ""}):
        answer = await api.http.post("/v1/accounts/confirm", json=wrong)
        assert_problem(answer, 401, "unauthenticated")
    assert await client.database.accounts.count_documents({}) == 0


async def test_a_link_makes_one_account_however_often_it_is_followed_at_once(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await asked(api, "", **ADA)
    body = {"link": await mailed_link(api, client, post_box), "password": PASSWORD}
    answers = await asyncio.gather(
        *(api.http.post("/v1/accounts/confirm", json=body) for _ in range(5))
    )
    assert sorted(answer.status_code for answer in answers) == [201, 410, 410, 410, 410]
    assert await client.database.accounts.count_documents({}) == 1


async def test_of_two_registrations_of_an_address_the_first_confirmed_counts(
    api: Api, client: Client, post_box: MailServer
) -> None:
    bodies = []
    for password in (PASSWORD, "somebody else's password"):
        await asked(api, "", **ADA | {"password": password})
        bodies.append({"link": await mailed_link(api, client, post_box), "password": password})
    assert (await api.http.post("/v1/accounts/confirm", json=bodies[0])).status_code == 201
    late = await api.http.post("/v1/accounts/confirm", json=bodies[1])
    assert_problem(late, 410, "link-invalid")
    assert (await log_in(api)).status_code == 201


async def test_whether_an_address_has_an_account_is_told_to_its_mailbox_alone(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await account(api, client, post_box)
    unknown = "nobody@example.org"
    answers = []
    for email in (EMAIL, unknown):
        registered = await api.http.post("/v1/accounts", json=ADA | {"email": email})
        forgot = await api.http.post("/v1/accounts/forgotten-password", json={"email": email})
        wrong = await log_in(api, email=email, password="a wrong password")
        answers.append(
            [
                (answer.status_code, _without_instance(answer))
                for answer in (registered, forgot, wrong)
            ]
        )
    assert answers[0] == answers[1]
    told = await mails(api, client, post_box)
    assert sorted((to.casefold() == EMAIL.casefold(), subject) for to, subject, _ in told) == [
        (False, "Confirm your account"),
        (True, "A new password"),
        (True, "You have an account already"),
    ]


def _without_instance(answer: httpx.Response) -> Json:
    return {name: value for name, value in answer.json().items() if name != "instance"}


async def test_an_unknown_address_takes_as_long_as_a_wrong_password(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await account(api, client, post_box)
    shortest = {}
    for email in (EMAIL, "nobody@example.org"):
        took = []
        for _ in range(5):
            began = time.perf_counter()
            await log_in(api, email=email, password="a wrong password")
            took.append(time.perf_counter() - began)
        shortest[email] = min(took)
    # A hash costs some fifty times what the rest does: without one it would be far below.
    assert shortest["nobody@example.org"] > shortest[EMAIL] / 3


async def test_a_forgotten_password_is_replaced_once_and_every_session_ends(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    links = []
    for _ in range(2):
        await asked(api, "/forgotten-password", email=EMAIL)
        links.append(await mailed_link(api, client, post_box))
    body = {"link": links[0], "password": "an even longer password"}
    weak = await api.http.post("/v1/accounts/reset-password", json=body | {"password": "x"})
    assert_invalid(weak, "password")
    assert (await api.http.post("/v1/accounts/reset-password", json=body)).status_code == 204
    assert_problem(await log_in(api), 401, "unauthenticated")
    assert (await log_in(api, password=body["password"])).status_code == 201
    refreshed = await refresh(api, made["refreshToken"])
    assert_problem(refreshed, 401, "unauthenticated")
    for link in links:  # The one that was used, and the one from before.
        late = await api.http.post("/v1/accounts/reset-password", json=body | {"link": link})
        assert_problem(late, 410, "link-invalid")


async def test_a_link_is_good_for_its_purpose_and_its_time_alone(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await account(api, client, post_box)
    await asked(api, "/forgotten-password", email=EMAIL)
    link = await mailed_link(api, client, post_box)
    [request] = await client.database.account_requests.find().to_list()
    past = signed_links.make(
        api.settings, "reset", request["_id"], clock.now() - timedelta(seconds=1)
    )
    elsewhere = signed_links.make(
        replace(api.settings, jwt_secret="x" * 32), "reset", request["_id"], request["expiresAt"]
    )
    confused = signed_links.make(api.settings, "guest", request["_id"], request["expiresAt"])
    good_token = token(api.settings, "fan_one", "fan")
    for wrong in (past, elsewhere, confused, good_token, link[:-2], "", "x", "a.b.c", "é" * 50):
        answer = await api.http.post(
            "/v1/accounts/reset-password", json={"link": wrong, "password": PASSWORD}
        )
        assert_problem(answer, 410, "link-invalid")
    for path in ("/accounts/confirm-email", "/guests/sessions"):
        assert_problem(await api.http.post(f"/v1{path}", json={"link": link}), 410, "link-invalid")
    as_token = await api.http.get("/v1/me", headers={"Authorization": f"Bearer {link}"})
    assert_problem(as_token, 401, "unauthenticated")


async def test_an_address_is_changed_by_the_mail_to_the_new_one(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    other = "zoe@new.example"
    wish = {"email": other, "password": PASSWORD}
    path = "/v1/accounts/me/email"
    wrong = await api.http.put(path, json=wish | {"password": "x"}, headers=bearing(made))
    assert_problem(wrong, 401, "unauthenticated")
    assert (await api.http.put(path, json=wish, headers=bearing(made))).status_code == 202
    [(to, _, text)] = await mails(api, client, post_box)
    assert to == other
    [link] = re.findall(r"#changeEmail=(\S+)", text)
    assert (await log_in(api, email=other)).status_code == 401
    for status in (204, 410):
        confirmed = await api.http.post("/v1/accounts/confirm-email", json={"link": link})
        assert confirmed.status_code == status
    assert (await log_in(api)).status_code == 401
    assert (await log_in(api, email=other)).status_code == 201
    assert (await api.http.get("/v1/me", headers=bearing(made))).json()["email"] == other


async def test_an_address_that_has_an_account_is_not_taken_over(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await account(api, client, post_box)
    other = await account(api, client, post_box, email="other@example.org")
    wish = {"email": EMAIL, "password": PASSWORD}
    answer = await api.http.put("/v1/accounts/me/email", json=wish, headers=bearing(other))
    assert answer.json() == {"status": "checkYourMail"}
    [(_, subject, text)] = await mails(api, client, post_box)
    assert subject == "You have an account already"
    assert "#" not in text


async def test_a_reset_ends_every_link_that_was_asked_for_and_a_change_is_told_to_the_old_address(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    wish = {"email": "thief@example.org", "password": PASSWORD}
    await api.http.put("/v1/accounts/me/email", json=wish, headers=bearing(made))
    [(_, _, text)] = await mails(api, client, post_box)
    [thiefs] = re.findall(r"#changeEmail=(\S+)", text)
    await asked(api, "/forgotten-password", email=EMAIL)
    body = {"link": await mailed_link(api, client, post_box), "password": "an even longer one"}
    assert (await api.http.post("/v1/accounts/reset-password", json=body)).status_code == 204
    late = await api.http.post("/v1/accounts/confirm-email", json={"link": thiefs})
    assert_problem(late, 410, "link-invalid")
    logged_in = (await log_in(api, password="an even longer one")).json()
    wish = {"email": "new@example.org", "password": "an even longer one"}
    await api.http.put("/v1/accounts/me/email", json=wish, headers=bearing(logged_in))
    link = await mailed_link(api, client, post_box)
    await api.http.post("/v1/accounts/confirm-email", json={"link": link})
    [(to, subject, text)] = await mails(api, client, post_box)
    assert (to.casefold(), subject) == (EMAIL.casefold(), "Your account has another address")
    assert "#" not in text


async def test_a_mail_goes_to_the_address_as_it_was_typed_and_greets_nobody_by_a_strangers_words(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await asked(api, "", **ADA | {"email": "anna@straße.example", "name": "you won 500 EUR"})
    [(to, _, text)] = await mails(api, client, post_box)
    assert to == "anna@xn--strae-oqa.example"
    assert "500 EUR" not in text


async def test_a_mailbox_is_not_filled_by_who_knows_its_address(
    api: Api, client: Client, post_box: MailServer
) -> None:
    for _ in range(6):
        await asked(api, "", **ADA)
    assert len(await mails(api, client, post_box)) == 3


async def test_wrong_codes_in_a_row_close_the_second_factor_for_a_while(
    api: Api, client: Client, post_box: MailServer
) -> None:
    secret = await with_second_factor(api, await account(api, client, post_box))
    for _ in range(5):
        assert (await log_in(api, code="000000")).status_code == 401
    assert_problem(await log_in(api, code=code_of(secret)), 401, "unauthenticated")
    await client.database.accounts.update_many(
        {}, {"$set": {"secondFactor.closedUntil": clock.now()}}
    )
    assert (await log_in(api, code=code_of(secret))).status_code == 201


async def test_a_token_alone_sends_nobodys_tickets_elsewhere(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    body = {"name": "Zoë", "email": "thief@example.org"}
    assert_invalid(await api.http.put("/v1/me", json=body, headers=bearing(made)), "email")
    own = body | {"email": EMAIL}
    assert (await api.http.put("/v1/me", json=own, headers=bearing(made))).status_code == 200


async def test_a_token_that_is_over_keeps_nobody_from_a_new_one(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    answer = await api.http.post(
        "/v1/sessions/refresh",
        json={"refreshToken": made["refreshToken"]},
        headers={"Authorization": "Bearer over.and.out"},
    )
    assert answer.status_code == 201


async def test_one_address_is_a_few_guests_and_no_more(api: Api) -> None:
    statuses = [
        (await api.http.post("/v1/guests", json={"name": "G", "email": EMAIL})).status_code
        for _ in range(7)
    ]
    assert statuses == [201] * 5 + [429] * 2


async def test_a_log_in_that_a_new_password_overtakes_makes_no_session(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await account(api, client, post_box)
    services = api.application.state["services"]
    matches = services.passwords.matches

    async def slowly(password_hash: str | None, password: str) -> bool:
        right = await matches(password_hash, password)
        await client.database.accounts.update_one({}, {"$set": {"passwordChangedAt": clock.now()}})
        return bool(right)

    services.passwords.matches = slowly
    assert_problem(await log_in(api), 401, "unauthenticated")


# --- Sessions ------------------------------------------------------------------------------------


async def refresh(api: Api, refresh_token: str) -> httpx.Response:
    return await api.http.post("/v1/sessions/refresh", json={"refreshToken": refresh_token})


async def test_a_refresh_token_is_good_once_and_its_second_use_ends_the_session(
    api: Api, client: Client, post_box: MailServer
) -> None:
    first = await account(api, client, post_box)
    second = (await refresh(api, first["refreshToken"])).json()
    third = (await refresh(api, second["refreshToken"])).json()
    assert (await api.http.get("/v1/me", headers=bearing(third))).status_code == 200
    assert_problem(await refresh(api, first["refreshToken"]), 401, "unauthenticated")
    assert_problem(await refresh(api, third["refreshToken"]), 401, "unauthenticated")


async def test_of_two_uses_at_once_at_most_one_passes_and_the_session_ends(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    other = (await log_in(api)).json()
    answers = await asyncio.gather(*(refresh(api, made["refreshToken"]) for _ in range(6)))
    passed = [answer for answer in answers if answer.status_code == 201]
    assert len(passed) <= 1
    for answer in passed:
        assert (await refresh(api, answer.json()["refreshToken"])).status_code == 401
    assert (await refresh(api, other["refreshToken"])).status_code == 201


async def test_logging_out_ends_one_session_and_everywhere_ends_all(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    others = [(await log_in(api)).json() for _ in range(2)]
    for _ in range(2):
        ended = await api.http.post("/v1/sessions/end", json={"refreshToken": made["refreshToken"]})
        assert ended.status_code == 204
    assert (await refresh(api, made["refreshToken"])).status_code == 401
    kept = (await refresh(api, others[0]["refreshToken"])).json()
    everywhere = await api.http.delete("/v1/accounts/me/sessions", headers=bearing(kept))
    assert everywhere.status_code == 204
    for session in (kept, others[1]):
        assert (await refresh(api, session["refreshToken"])).status_code == 401


async def test_a_refresh_token_can_not_be_made_and_a_session_has_an_end(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    prefix, identifier, _, signature = made["refreshToken"].split(".")
    for wrong in (
        f"{prefix}.{identifier}.1.{signature}",
        f"{prefix}.{identifier}.0.{signature[:-1]}",
        f"{prefix}.{identifier}.0.",
        f"{prefix}.{identifier}",
        "",
        "....",
        "é.é.é.é",
        made["accessToken"],
    ):
        assert_problem(await refresh(api, wrong), 401, "unauthenticated")
    [stored] = await client.database.sessions.find().to_list()
    assert signature not in str(stored)
    now = clock.now()
    late = now + timedelta(days=sessions.IDLE_DAYS + 1)
    with pytest.raises(sessions.SessionOver):
        await sessions.go_on(client.database, api.settings, made["refreshToken"], late)


async def test_a_session_that_is_used_every_day_still_ends(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    refresh_token, now = made["refreshToken"], clock.now()
    for _ in range(sessions.DAYS_MAX // 20 - 1):
        now += timedelta(days=20)
        session = await sessions.go_on(client.database, api.settings, refresh_token, now)
        refresh_token = session.refresh_token
    with pytest.raises(sessions.SessionOver):
        await sessions.go_on(client.database, api.settings, refresh_token, now + timedelta(days=20))


async def test_an_access_token_is_good_for_fifteen_minutes(api: Api) -> None:
    long_ago = clock.now() - timedelta(seconds=access_tokens.ACCESS_SECONDS + 1)
    old = access_tokens.issue(api.settings, subject="fan_one", role="fan", now=long_ago)
    answer = await api.http.get("/v1/me", headers={"Authorization": f"Bearer {old}"})
    assert_problem(answer, 401, "unauthenticated")


# --- The second factor ---------------------------------------------------------------------------


def code_of(secret: str, steps: int = 0) -> str:
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    return TOTP(key, 6, SHA1(), 30).generate(time.time() + 30 * steps).decode()


async def with_second_factor(api: Api, made: Json) -> str:
    """The secret, once its first code was confirmed: that of the step before."""
    begun = await api.http.post(
        "/v1/accounts/me/second-factor", json={"password": PASSWORD}, headers=bearing(made)
    )
    assert begun.status_code == 201, begun.text
    secret = str(begun.json()["secret"])
    assert f"secret={secret}" in begun.json()["uri"]
    assert (await log_in(api)).status_code == 201  # It does not count yet.
    for code, status in (("000000", 422), ("x", 422), (code_of(secret, -1), 204)):
        confirmed = await api.http.post(
            "/v1/accounts/me/second-factor/confirm", json={"code": code}, headers=bearing(made)
        )
        assert confirmed.status_code == status, confirmed.text
    return secret


async def test_with_a_second_factor_the_password_alone_opens_nothing(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box, role="organiser")
    secret = await with_second_factor(api, made)
    assert_problem(await log_in(api), 401, "second-factor-needed")
    assert_problem(await log_in(api, password="wrong one!"), 401, "unauthenticated")
    assert_problem(await log_in(api, code=code_of(secret, -1)), 401, "unauthenticated")
    assert_problem(await log_in(api, code=code_of(secret, 9)), 401, "unauthenticated")
    assert (await log_in(api, code=code_of(secret))).status_code == 201


async def test_a_code_counts_once_whoever_else_sends_it_at_the_same_moment(
    api: Api, client: Client, post_box: MailServer
) -> None:
    secret = await with_second_factor(api, await account(api, client, post_box))
    code = code_of(secret, 1)
    answers = await asyncio.gather(*(log_in(api, code=code) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 401, 401, 401]
    assert (await log_in(api, code=code)).status_code == 401


async def test_the_second_factor_is_removed_by_password_and_code_and_not_replaced_by_a_token(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    secret = await with_second_factor(api, made)
    again = await api.http.post(
        "/v1/accounts/me/second-factor", json={"password": PASSWORD}, headers=bearing(made)
    )
    assert_problem(again, 409, "conflict")
    path = "/v1/accounts/me/second-factor/remove"
    for password, code, status in (
        ("wrong one!", code_of(secret), 401),
        (PASSWORD, "000000", 401),
        (PASSWORD, code_of(secret), 204),
        (PASSWORD, code_of(secret, 1), 409),
    ):
        body = {"password": password, "code": code}
        answer = await api.http.post(path, json=body, headers=bearing(made))
        assert answer.status_code == status, answer.text
    assert (await log_in(api)).status_code == 201


async def test_a_copy_of_the_database_opens_no_account(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    secret = await with_second_factor(api, made)
    await asked(api, "/forgotten-password", email=EMAIL)
    copy = ""
    for name in await client.database.list_collection_names():
        copy += str(await client.database[name].find().to_list())
    assert "$argon2id$" in copy
    link = await mailed_link(api, client, post_box)
    for held in (PASSWORD, secret, link, made["refreshToken"], made["accessToken"]):
        assert held not in copy
    other = replace(api.settings, jwt_secret="x" * 32)
    [stored] = await client.database.accounts.find().to_list()
    assert second_factors.decrypted(other, stored["secondFactor"]["secret"]) is None
    assert second_factors.decrypted(api.settings, stored["secondFactor"]["secret"])


async def test_with_a_second_factor_another_address_takes_a_code(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    secret = await with_second_factor(api, made)
    wish = {"email": "new@example.org", "password": PASSWORD}
    path = "/v1/accounts/me/email"
    without = await api.http.put(path, json=wish, headers=bearing(made))
    assert_problem(without, 401, "second-factor-needed")
    given = await api.http.put(path, json=wish | {"code": code_of(secret)}, headers=bearing(made))
    assert given.status_code == 202


# --- Leaving -------------------------------------------------------------------------------------


async def test_a_fan_takes_their_data_along_and_deletes_their_account(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    exported = await api.http.get("/v1/me/export", headers=bearing(made))
    assert exported.status_code == 200
    assert exported.headers["content-disposition"] == 'attachment; filename="my-data.json"'
    assert exported.json()["account"]["email"] == EMAIL.casefold()
    for path in ("/v1/accounts/me/delete", "/v1/me/erasure"):
        wrong = await api.http.post(path, json={"password": "wrong one!"}, headers=bearing(made))
        assert_problem(wrong, 401, "unauthenticated")
    assert_problem(
        await api.http.post("/v1/me/erasure", json={}, headers=bearing(made)),
        401,
        "unauthenticated",
    )
    gone = await api.http.post(
        "/v1/accounts/me/delete", json={"password": PASSWORD}, headers=bearing(made)
    )
    assert gone.status_code == 204, gone.text
    still = await api.http.get("/v1/me", headers=bearing(made))
    assert_problem(still, 401, "unauthenticated")
    assert_problem(await log_in(api), 401, "unauthenticated")
    assert_problem(await refresh(api, made["refreshToken"]), 401, "unauthenticated")
    assert (await account(api, client, post_box))["accountId"] != made["accountId"]


async def test_a_fan_without_an_account_is_forgotten_by_their_token(api: Api) -> None:
    await api.http.put("/v1/me", json={"name": "Zoë", "email": EMAIL}, headers=api.as_fan)
    order = await api.order(await api.sale(), 0)
    blocked = await api.http.post("/v1/me/erasure", json={}, headers=api.as_fan)
    assert assert_problem(blocked, 409, "erasure-blocked")["orderIds"] == [order["orderId"]]
    await api.http.post(f"/v1/orders/{order['orderId']}/cancel", headers=api.as_fan)
    erased = await api.http.post("/v1/me/erasure", json={}, headers=api.as_fan)
    assert erased.status_code == 204
    for method, path in (("GET", "/v1/me"), ("PUT", "/v1/me"), ("POST", "/v1/orders")):
        answer = await api.http.request(method, path, json={}, headers=api.as_fan)
        assert_problem(answer, 401, "unauthenticated")


async def test_a_guest_who_typed_anothers_address_gets_and_deletes_nothing_of_theirs(
    api: Api, client: Client
) -> None:
    await asked(api, "", **ADA)
    guest = (await api.http.post("/v1/guests", json={"name": "X", "email": EMAIL})).json()
    exported = (await api.http.get("/v1/me/export", headers=bearing(guest))).json()
    assert exported["requests"] == []
    erased = await api.http.post("/v1/me/erasure", json={}, headers=bearing(guest))
    assert erased.status_code == 204
    assert await client.database.account_requests.count_documents({}) == 1


async def test_an_organiser_leaves_once_nothing_is_to_come(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box, role="organiser")
    made_event = await api.http.post("/v1/events", json=event_body(), headers=bearing(made))
    event_id = made_event.json()["eventId"]
    key = await api.http.post(
        "/v1/api-keys", json={"name": "x", "scope": "viewer"}, headers=bearing(made)
    )
    leave = {"path": "/v1/accounts/me/delete", "json": {"password": PASSWORD}}
    answer = await api.http.post(leave["path"], json=leave["json"], headers=bearing(made))
    assert_problem(answer, 409, "conflict")
    await api.http.post(f"/v1/events/{event_id}/cancel", headers=bearing(made))
    answer = await api.http.post(leave["path"], json=leave["json"], headers=bearing(made))
    assert answer.status_code == 204
    headers = {"Authorization": f"Bearer {key.json()['key']}"}
    assert (await api.http.get("/v1/statements", headers=headers)).status_code == 401
    for path, body in (("/v1/api-keys", {"name": "y", "scope": "editor"}), ("/v1/events", {})):
        still = await api.http.post(path, json=body, headers=bearing(made))
        assert_problem(still, 401, "unauthenticated")


# --- Guests --------------------------------------------------------------------------------------


async def test_a_guest_buys_and_comes_back_by_the_link_of_the_mail(
    api: Api, client: Client, post_box: MailServer
) -> None:
    event_id = await api.sale()
    answer = await api.http.post("/v1/guests", json={"name": "Zoë", "email": EMAIL})
    assert answer.status_code == 201
    guest = bearing(answer.json())
    held = await api.http.post(
        f"/v1/events/{event_id}/holds", json={"section": "Floor", "quantity": 1}, headers=guest
    )
    order = await api.http.post("/v1/orders", json={"holdId": held.json()["holdId"]}, headers=guest)
    paid = await api.http.post(f"/v1/sandbox/payments/{order.json()['paymentId']}/pay")
    assert paid.status_code == 200
    [(_, subject, text)] = await mails(api, client, post_box)
    assert subject == "Your tickets for The Last Waltz"
    [link] = re.findall(r"/tickets#link=(\S+)", text)
    back = await api.http.post("/v1/guests/sessions", json={"link": link})
    assert back.json()["fanId"] == answer.json()["fanId"]
    tickets = await api.http.get("/v1/me/tickets", headers=bearing(back.json()))
    assert len(tickets.json()["items"]) == 1
    other = await api.http.post("/v1/guests", json={"name": "Zoë", "email": EMAIL})
    assert other.json()["fanId"] != answer.json()["fanId"]
    none = await api.http.get("/v1/me/tickets", headers=bearing(other.json()))
    assert none.json()["items"] == []


async def test_a_fan_with_an_account_is_mailed_no_link_that_opens_it(
    api: Api, client: Client, post_box: MailServer
) -> None:
    await api.http.put("/v1/me", json={"name": "Zoë", "email": EMAIL}, headers=api.as_fan)
    await api.confirmed_order(await api.sale(), 0)
    [(_, _, text)] = await mails(api, client, post_box)
    assert "#link=" not in text
    link = signed_links.make(api.settings, "guest", "fan_one", clock.now() + timedelta(days=1))
    answer = await api.http.post("/v1/guests/sessions", json={"link": link})
    assert_problem(answer, 410, "link-invalid")


# --- Abuse ---------------------------------------------------------------------------------------


async def test_a_password_is_tried_so_often_and_then_has_to_wait_whatever_the_address(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    api.application.state["services"].limits = limits.Limits(is_on=False)
    statuses = [(await log_in(api, password=f"guess {number}")).status_code for number in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    refused = await log_in(api)
    assert_problem(refused, 429, "rate-limited")
    assert refused.headers["ratelimit-policy"].startswith('"sign-in-account"')
    assert int(refused.headers["retry-after"]) >= 1
    assert (await log_in(api, email="other@example.org")).status_code == 401
    # The owner, elsewhere, is not kept out by a stranger's tries.
    elsewhere = httpx.ASGITransport(app=api.application, client=("192.0.2.9", 1))
    async with httpx.AsyncClient(transport=elsewhere, base_url="http://testserver") as http:
        answer = await http.post("/v1/sessions", json={"email": EMAIL, "password": PASSWORD})
    assert answer.status_code == 401


async def test_however_long_what_is_typed_is_little_of_it_is_kept(api: Api) -> None:
    for number in range(20):
        link = f"{number}" + "x" * 50_000
        await api.http.post("/v1/guests/sessions", json={"link": link})
    meter = api.application.state["services"].limits._sign_in_account
    assert all(len(key) <= 64 for key in meter._made_up_at)


async def test_more_sign_ins_than_can_be_checked_are_told_to_come_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticketing.passwords.WAITING_MAX", 3)
    answers = await asyncio.gather(
        *(log_in(api, email=f"fan{number}@example.org") for number in range(8))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert set(statuses) == {401, 503}
    busy = next(answer for answer in answers if answer.status_code == 503)
    assert busy.headers["retry-after"]


async def test_a_hash_does_not_hold_up_who_buys(api: Api) -> None:
    """The loop goes on while passwords are checked."""
    done = asyncio.gather(*(log_in(api, email=f"fan{n}@example.org") for n in range(10)))
    rounds = 0
    while not done.done():
        assert (await api.http.get("/health/live")).status_code == 200
        await asyncio.sleep(0)
        rounds += 1
    assert rounds > 10
    await done


async def test_no_answer_sets_a_cookie_and_a_cookie_opens_nothing(
    api: Api, client: Client, post_box: MailServer
) -> None:
    made = await account(api, client, post_box)
    logged_in = await log_in(api)
    assert "set-cookie" not in logged_in.headers
    cookie = {"Cookie": f"token={made['accessToken']}; session={made['refreshToken']}"}
    assert_problem(await api.http.get("/v1/me", headers=cookie), 401, "unauthenticated")


async def test_a_key_of_an_organiser_manages_nobodys_account(api: Api) -> None:
    made = await api.http.post(
        "/v1/api-keys", json={"name": "x", "scope": "editor"}, headers=api.as_organiser
    )
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    answer = await api.http.delete("/v1/accounts/me/sessions", headers=headers)
    assert_problem(answer, 403, "forbidden")
