"""The team of an organiser, their API keys, and the log of what all of them changed."""

import pytest

from tests.routes.conftest import Api, Json, assert_invalid, assert_problem, event_body
from ticketing.mongo import Client
from ticketing.settings import Settings

MEMBER = "org_member"
# What each role is the first to be allowed to do with the organiser's event.
LADDER = {
    "viewer": [
        ("GET", "/v1/events/{event}"),
        ("GET", "/v1/events/{event}/dashboard"),
        ("GET", "/v1/events/{event}/dashboard/sales"),
        ("GET", "/v1/events/{event}/statement"),
        ("GET", "/v1/events/{event}/void-tickets"),
        ("GET", "/v1/statements?organiserId=org_one"),
    ],
    "boxOffice": [("GET", "/v1/events/{event}/refunds")],
    "editor": [
        ("POST", "/v1/events?organiserId=org_one"),
        ("POST", "/v1/events/{event}/publish"),
        ("POST", "/v1/events/{event}/move"),
    ],
    "owner": [
        ("GET", "/v1/team?organiserId=org_one"),
        ("GET", "/v1/api-keys?organiserId=org_one"),
        ("GET", "/v1/audit-log?organiserId=org_one"),
        ("GET", "/v1/webhooks?organiserId=org_one"),
        ("POST", "/v1/events/{event}/cancel"),
    ],
}
ROLES = list(LADDER)


async def give_role(api: Api, role: str, member: str = MEMBER) -> None:
    answer = await api.http.put(f"/v1/team/{member}", json={"role": role}, headers=api.as_organiser)
    assert answer.status_code == 200, answer.text


async def ask(api: Api, method: str, path: str, headers: dict[str, str]) -> int:
    body: Json | None = None
    if path.startswith("/v1/events?"):
        body = event_body()
    elif path.endswith("/move"):
        body = {"venueName": "Elsewhere"}
    answer = await api.http.request(method, path, json=body, headers=headers)
    if answer.status_code >= 400:
        assert answer.json()["type"].endswith(
            {403: "forbidden", 404: "not-found"}[answer.status_code]
        ), answer.text
    return answer.status_code


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_in_the_team_reaches_as_far_as_the_ladder_says(api: Api, role: str) -> None:
    event_id = (await api.event())["eventId"]
    await give_role(api, role)
    headers = api.as_role(MEMBER, "organiser")
    for step, actions in LADDER.items():
        for method, path in actions:
            status = await ask(api, method, path.format(event=event_id), headers)
            if ROLES.index(step) <= ROLES.index(role):
                assert status in (200, 201), (step, path)
            else:
                assert status == 403, (step, path)


async def test_a_stranger_learns_nothing_of_an_organiser_or_their_draft(api: Api) -> None:
    event_id = (await api.event())["eventId"]
    for headers in (api.as_other_organiser, api.as_role(MEMBER, "organiser")):
        for actions in LADDER.values():
            for method, path in actions:
                assert await ask(api, method, path.format(event=event_id), headers) == 404, path


async def test_whoever_is_taken_out_of_the_team_is_a_stranger_at_once(api: Api) -> None:
    event_id = (await api.event())["eventId"]
    await give_role(api, "owner")
    headers = api.as_role(MEMBER, "organiser")
    assert await ask(api, "GET", f"/v1/events/{event_id}/dashboard", headers) == 200
    gone = await api.http.delete(f"/v1/team/{MEMBER}", headers=api.as_organiser)
    assert gone.status_code == 204
    assert await ask(api, "GET", f"/v1/events/{event_id}/dashboard", headers) == 404
    again = await api.http.delete(f"/v1/team/{MEMBER}", headers=api.as_organiser)
    assert_problem(again, 404, "not-found")


async def test_a_fan_of_the_same_name_is_nobody_in_the_team(api: Api) -> None:
    event_id = await api.sale()
    await give_role(api, "owner")
    answer = await api.http.get(
        f"/v1/events/{event_id}/dashboard", headers=api.as_role(MEMBER, "fan")
    )
    assert_problem(answer, 403, "forbidden")


async def test_the_team_is_listed_and_odd_members_are_refused(api: Api) -> None:
    await give_role(api, "viewer")
    await give_role(api, "editor")
    team = (await api.http.get("/v1/team", headers=api.as_organiser)).json()
    assert [(item["memberId"], item["role"], item["addedBy"]) for item in team["items"]] == [
        (MEMBER, "editor", "org_one")
    ]
    for body, path in (({"role": "gate"}, "role"), ({"role": None}, "role"), ({}, "role")):
        answer = await api.http.put(f"/v1/team/{MEMBER}", json=body, headers=api.as_organiser)
        assert_invalid(answer, path)
    odd = await api.http.put(
        f"/v1/team/{'x' * 129}", json={"role": "viewer"}, headers=api.as_organiser
    )
    assert_invalid(odd, "memberId")


async def made_key(api: Api, **body: object) -> Json:
    answer = await api.http.post(
        "/v1/api-keys", json={"name": "Till 1"} | body, headers=api.as_organiser
    )
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def bearing(key: Json) -> dict[str, str]:
    return {"Authorization": f"Bearer {key['key']}"}


@pytest.mark.parametrize("scope", ["viewer", "boxOffice", "editor"])
async def test_a_key_reaches_as_far_as_its_scope_and_never_an_owners_rights(
    api: Api, scope: str
) -> None:
    event_id = (await api.event())["eventId"]
    headers = bearing(await made_key(api, scope=scope))
    for step, actions in LADDER.items():
        for method, path in actions:
            status = await ask(api, method, path.format(event=event_id), headers)
            allowed = ROLES.index(step) <= ROLES.index(scope)
            assert (status in (200, 201)) if allowed else (status == 403), (step, path)
    for path in ("/v1/me", "/v1/orders/ord_x"):
        assert_problem(await api.http.get(path, headers=headers), 403, "forbidden")


async def test_a_gates_key_opens_the_void_tickets_of_its_event_and_nothing_else(api: Api) -> None:
    event_id, other_id = await api.sale(), await api.sale()
    headers = bearing(await made_key(api, scope="gate", eventId=event_id))
    void = f"/v1/events/{event_id}/void-tickets"
    assert (await api.http.get(void, headers=headers)).status_code == 200
    assert (await api.http.get("/v1/ticket-keys", headers=headers)).status_code == 200
    other = await api.http.get(f"/v1/events/{other_id}/void-tickets", headers=headers)
    assert_problem(other, 404, "not-found")
    for method, path in [action for actions in LADDER.values() for action in actions][1:]:
        if not path.endswith("/void-tickets"):
            status = await ask(api, method, path.format(event=event_id), headers)
            assert status == 403, path


async def test_a_revoked_key_opens_nothing_and_is_still_listed(api: Api) -> None:
    key = await made_key(api, scope="viewer")
    mine = {"mine": "true"}
    assert (await api.http.get("/v1/events", params=mine, headers=bearing(key))).status_code == 200
    for _ in range(2):
        revoked = await api.http.delete(f"/v1/api-keys/{key['keyId']}", headers=api.as_organiser)
        assert revoked.status_code == 204
    answer = await api.http.get("/v1/events", params=mine, headers=bearing(key))
    assert_problem(answer, 401, "unauthenticated")
    [listed] = (await api.http.get("/v1/api-keys", headers=api.as_organiser)).json()["items"]
    assert listed["revokedAt"]
    assert listed["lastUsedAt"]
    assert "key" not in listed


async def test_a_key_is_kept_as_a_hash_and_nothing_near_it_is_taken(
    api: Api, client: Client
) -> None:
    key = await made_key(api, scope="viewer")
    prefix, identifier, secret = key["key"].split("_", 2)
    [stored] = await client.database.api_keys.find().to_list()
    assert secret not in str(stored)
    for wrong in (
        f"{prefix}_{identifier}_{secret[:-1]}",
        f"{prefix}_{identifier}_{secret}x",
        f"{prefix}_{identifier}_",
        f"{prefix}_{identifier}",
        f"{prefix}__{secret}",
        f"{prefix}_{identifier[:-1]}{'1' if identifier.endswith('0') else '0'}_{secret}",
        f"{prefix}_{stored['hash']}_{secret}",
        f"{prefix}_{identifier}_{stored['hash']}",
        "tk_",
    ):
        answer = await api.http.get("/v1/events", headers={"Authorization": f"Bearer {wrong}"})
        assert_problem(answer, 401, "unauthenticated")


async def test_the_same_request_makes_one_key_and_tells_it_again(api: Api) -> None:
    headers = api.as_organiser | {"Idempotency-Key": "till-1"}
    body = {"name": "Till 1", "scope": "viewer"}
    first = await api.http.post("/v1/api-keys", json=body, headers=headers)
    second = await api.http.post("/v1/api-keys", json=body, headers=headers)
    assert first.json() == second.json()
    assert (await api.http.get("/v1/team", headers=bearing(first.json()))).status_code == 403
    other = await api.http.post("/v1/api-keys", json=body | {"name": "Till 2"}, headers=headers)
    assert_problem(other, 422, "idempotency-key-reused")


async def test_odd_keys_are_refused(api: Api) -> None:
    event_id = await api.sale()
    for body, path in (
        ({"name": "", "scope": "viewer"}, "name"),
        ({"name": "x", "scope": "owner"}, "scope"),
        ({"name": "x", "scope": "gate"}, "eventId"),
        ({"name": "x", "scope": "viewer", "eventId": event_id}, "eventId"),
    ):
        answer = await api.http.post("/v1/api-keys", json=body, headers=api.as_organiser)
        assert_invalid(answer, path)
    for headers, named in ((api.as_organiser, "evt_none"), (api.as_other_organiser, event_id)):
        answer = await api.http.post(
            "/v1/api-keys",
            json={"name": "x", "scope": "gate", "eventId": named},
            headers=headers,
        )
        assert_problem(answer, 404, "not-found")


async def audit_log(api: Api, **parameters: str) -> Json:
    answer = await api.http.get("/v1/audit-log", params=parameters, headers=api.as_organiser)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_what_the_team_changes_is_in_the_audit_log_with_before_and_after(api: Api) -> None:
    event_id = (await api.event())["eventId"]
    await give_role(api, "editor")
    member = api.as_role(MEMBER, "organiser") | {"X-Request-Id": "the-one"}
    moved = await api.http.post(
        f"/v1/events/{event_id}/move", json={"venueName": "Elsewhere"}, headers=member
    )
    assert moved.status_code == 200
    await api.http.put(
        f"/v1/admin/events/{event_id}/fees", json={"perSeat": 50}, headers=api.as_admin
    )
    entries = (await audit_log(api))["items"]
    assert [entry["action"] for entry in entries] == [
        "event.fees",
        "event.move",
        "team.put",
        "event.create",
    ]
    fees, move, put, create = entries
    assert (fees["actorId"], fees["actorRole"], fees["outcome"]) == ("adm_one", "admin", "done")
    assert fees["after"] == {"perSeat": 50, "basisPoints": 0}
    assert (move["actorId"], move["about"], move["requestId"]) == (MEMBER, event_id, "the-one")
    assert (move["before"]["venueName"], move["after"]["venueName"]) == ("Winterland", "Elsewhere")
    assert move["address"] == "127.0.0.1"
    assert put["after"] == {"role": "editor"}
    assert create["after"]["eventId"] == event_id


async def test_a_refusal_and_a_key_are_in_the_audit_log_and_secrets_are_not(api: Api) -> None:
    event_id = await api.sale()
    key = await made_key(api, scope="editor")
    await api.http.post(f"/v1/events/{event_id}/cancel", headers=api.as_organiser)
    published = await api.http.post(f"/v1/events/{event_id}/publish", headers=bearing(key))
    assert_problem(published, 409, "conflict")
    hook = await api.http.post(
        "/v1/webhooks", json={"url": "https://example.org/hook"}, headers=api.as_organiser
    )
    assert hook.status_code == 201, hook.text
    log = await audit_log(api)
    assert key["key"].split("_", 2)[2] not in str(log)
    assert hook.json()["secret"] not in str(log)
    [refused] = [entry for entry in log["items"] if entry["outcome"] == "conflict"]
    assert (refused["action"], refused["keyId"]) == ("event.publish", key["keyId"])
    assert refused["after"] is None


async def test_the_audit_log_is_read_page_by_page_and_by_owners_of_it_alone(api: Api) -> None:
    for number in range(5):
        await give_role(api, "viewer", f"org_{number}")
    first = await audit_log(api, limit="3")
    second = await audit_log(api, limit="3", cursor=first["nextCursor"])
    assert [entry["about"] for entry in first["items"] + second["items"]] == [
        f"org_{number}" for number in reversed(range(5))
    ]
    assert second["nextCursor"] is None
    others = await api.http.get("/v1/audit-log", headers=api.as_other_organiser)
    assert others.json()["items"] == []


async def test_a_gates_key_lists_no_drafts_of_its_organiser(api: Api) -> None:
    event_id = await api.sale()
    await api.event(name="Secret")
    headers = bearing(await made_key(api, scope="gate", eventId=event_id))
    answer = await api.http.get("/v1/events", params={"mine": "true"}, headers=headers)
    assert_problem(answer, 403, "forbidden")


async def test_a_member_may_leave_by_themself(api: Api) -> None:
    await give_role(api, "viewer")
    mine = api.as_role(MEMBER, "organiser")
    path = f"/v1/team/{MEMBER}?organiserId=org_one"
    assert (await api.http.delete(path, headers=mine)).status_code == 204
    assert (await api.http.delete(path, headers=mine)).status_code == 404


async def test_one_organisers_key_is_never_anothers_whatever_they_are_called(
    api: Api, settings: Settings, client: Client
) -> None:
    secrets = set()
    for organiser, key in (("org_v", "ci:deploy"), ("org_v:ci", "deploy")):
        made = await api.http.post(
            "/v1/api-keys",
            json={"name": "x", "scope": "viewer"},
            headers=api.as_role(organiser, "organiser") | {"Idempotency-Key": key},
        )
        secrets.add(made.json()["key"].split("_", 2)[2])
    assert len(secrets) == 2


async def test_a_key_that_can_be_made_again_is_remembered_as_revoked_for_good(
    api: Api, client: Client
) -> None:
    for headers in ({"Idempotency-Key": "till"}, {}):
        made = await api.http.post(
            "/v1/api-keys",
            json={"name": "x", "scope": "viewer"},
            headers=api.as_organiser | headers,
        )
        await api.http.delete(f"/v1/api-keys/{made.json()['keyId']}", headers=api.as_organiser)
        stored = await client.database.api_keys.find_one({"_id": made.json()["keyId"]})
        assert stored is not None
        assert ("forgetAt" in stored) == (not headers)


async def test_the_newest_key_is_in_the_list_however_many_were_revoked(
    api: Api, client: Client
) -> None:
    first = await made_key(api, scope="viewer")
    stored = await client.database.api_keys.find_one({"_id": first["keyId"]})
    assert stored is not None
    revoked = {**stored, "revokedAt": stored["createdAt"]}
    await client.database.api_keys.insert_many(
        [{**revoked, "_id": f"{number:016x}"} for number in range(600)]
    )
    last = await made_key(api, scope="viewer")
    listed = (await api.http.get("/v1/api-keys", headers=api.as_organiser)).json()["items"]
    assert [item["keyId"] for item in listed[:2]] == [first["keyId"], last["keyId"]]


async def test_a_draft_that_was_called_off_was_never_announced(api: Api) -> None:
    event_id = (await api.event(name="Secret"))["eventId"]
    await api.http.post(f"/v1/events/{event_id}/cancel", headers=api.as_organiser)
    for path in ("", "/seats", "/availability"):
        answer = await api.http.get(f"/v1/events/{event_id}{path}")
        assert_problem(answer, 404, "not-found")
    listed = await api.http.get("/v1/events", params={"status": "cancelled"})
    assert listed.json()["items"] == []
    assert (await api.http.get(f"/v1/events/{event_id}", headers=api.as_organiser)).is_success
