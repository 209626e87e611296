"""Who behaves as no fan does works a moment for the next hold, where the event asks it."""

import asyncio
import base64
import json
from datetime import timedelta
from typing import Any

import altcha
import httpx
import pytest

from tests.routes.conftest import Api, Json, assert_problem
from ticketing import challenges, clock
from ticketing.mongo import Client
from ticketing.suspicions import UNPAID_HOLDS_MAX


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenges, "COST", 10)
    monkeypatch.setattr(challenges, "TRIES", (10, 50))


async def hold(
    api: Api, event_id: str, headers: dict[str, str], solution: str | None = None
) -> httpx.Response:
    solved = {} if solution is None else {"Altcha-Payload": solution}
    return await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"section": "Floor", "quantity": 1},
        headers=headers | solved,
    )


async def many_holds(api: Api, event_id: str, headers: dict[str, str]) -> None:
    """Hold and let go until it is suspicious."""
    for _ in range(UNPAID_HOLDS_MAX):
        held = await hold(api, event_id, headers)
        assert held.status_code == 201, held.text
        await api.http.delete(f"/v1/holds/{held.json()['holdId']}", headers=headers)


def solve(problem: Json) -> str:
    challenge = altcha.Challenge.from_dict(problem["challenge"])
    solution = altcha.solve_challenge(challenge)
    assert solution is not None
    return altcha.Payload(challenge, solution).to_base64()


async def challenged(api: Api, event_id: str, headers: dict[str, str]) -> Json:
    return assert_problem(await hold(api, event_id, headers), 403, "challenge-required")


async def test_after_many_unpaid_holds_the_next_one_takes_a_solved_challenge(api: Api) -> None:
    event_id = await api.sale(proofOfWork=True)
    await many_holds(api, event_id, api.as_fan)
    solution = solve(await challenged(api, event_id, api.as_fan))
    assert (await hold(api, event_id, api.as_fan, solution)).status_code == 201
    assert (await hold(api, event_id, api.as_other_fan)).status_code == 201
    await challenged(api, event_id, api.as_fan)


async def test_an_event_that_does_not_say_so_asks_it_of_nobody(api: Api) -> None:
    event_id = await api.sale()
    for _ in range(2):
        await many_holds(api, event_id, api.as_fan)
    assert "proofOfWork" not in (await api.http.get(f"/v1/events/{event_id}")).json()


async def test_who_pays_is_a_fan_again(api: Api) -> None:
    event_id = await api.sale(proofOfWork=True)
    assert (await api.http.get(f"/v1/events/{event_id}")).json()["proofOfWork"] is True
    await many_holds(api, event_id, api.as_fan)
    solution = solve(await challenged(api, event_id, api.as_fan))
    held = await hold(api, event_id, api.as_fan, solution)
    order = await api.http.post(
        "/v1/orders", json={"holdId": held.json()["holdId"]}, headers=api.as_fan
    )
    paid = await api.http.post(f"/v1/sandbox/payments/{order.json()['paymentId']}/pay")
    assert paid.status_code == 200
    assert (await hold(api, event_id, api.as_fan)).status_code == 201


async def test_many_accounts_from_one_address_work_and_those_elsewhere_do_not(api: Api) -> None:
    event_id = await api.sale(
        proofOfWork=True,
        sections=[{"name": "Floor", "priceCategory": "Rear", "capacity": 200}],
    )
    answers = [
        await hold(api, event_id, api.as_role(f"fan_{number}", "fan")) for number in range(52)
    ]
    assert [answer.status_code for answer in answers] == [201] * 51 + [403]
    elsewhere = httpx.ASGITransport(app=api.application, client=("192.0.2.9", 1))
    async with httpx.AsyncClient(transport=elsewhere, base_url="http://testserver") as http:
        answer = await http.post(
            f"/v1/events/{event_id}/holds",
            json={"section": "Floor", "quantity": 1},
            headers=api.as_role("fan_elsewhere", "fan"),
        )
    assert answer.status_code == 201


async def test_one_solution_is_one_hold_however_often_it_is_sent_at_once(api: Api) -> None:
    event_id = await api.sale(proofOfWork=True)
    await many_holds(api, event_id, api.as_fan)
    solution = solve(await challenged(api, event_id, api.as_fan))
    answers = await asyncio.gather(*(hold(api, event_id, api.as_fan, solution) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201] + [403] * 5


def _changed(solution: str, *way: str, to: Any) -> str:
    payload = json.loads(base64.b64decode(solution))
    place = payload
    for name in way[:-1]:
        place = place[name]
    place[way[-1]] = to
    return base64.b64encode(json.dumps(payload).encode()).decode()


async def test_no_other_solution_counts(api: Api, client: Client) -> None:
    event_id, other_id = await api.sale(proofOfWork=True), await api.sale(proofOfWork=True)
    for headers in (api.as_fan, api.as_other_fan):
        await many_holds(api, event_id, headers)
    mine = solve(await challenged(api, event_id, api.as_fan))
    theirs = solve(await challenged(api, event_id, api.as_other_fan))
    elsewhere = solve(await challenged(api, other_id, api.as_fan))
    long_ago = clock.now() - challenges.VALID_FOR - timedelta(minutes=1)
    late = solve({"challenge": challenges._new(api.settings, "fan_one", event_id, long_ago)})
    parameters = ("challenge", "parameters")
    self_made = altcha.create_challenge("PBKDF2/SHA-256", 1, counter=1, hmac_secret="x")
    for wrong in (
        theirs,
        elsewhere,
        late,
        solve({"challenge": self_made.to_dict()}),
        _changed(mine, "solution", "derivedKey", to="00" * 32),
        _changed(mine, "solution", "derivedKey", to=None),
        _changed(mine, *parameters, "cost", to=10**12),
        _changed(mine, *parameters, "keyPrefix", to=""),
        _changed(mine, *parameters, "algorithm", to="SCRYPT"),
        _changed(mine, *parameters, "nonce", to={"$gt": ""}),
        _changed(mine, *parameters, "expiresAt", to=None),
        _changed(mine, *parameters, "data", to={"for": "anybody"}),
        _changed(mine, "challenge", "signature", to=None),
        _changed(mine, "challenge", "signature", to=[]),
        "",
        "x",
        base64.b64encode(b"[" * 3_000).decode(),
        base64.b64encode(b"{}").decode(),
        base64.b64encode(b'{"challenge": 1, "solution": 2}').decode(),
        "A" * 10_000,
    ):
        answer = await hold(api, event_id, api.as_fan, wrong)
        assert_problem(answer, 403, "challenge-required")
    assert await client.database.solved_challenges.count_documents({}) == 0
    assert (await hold(api, event_id, api.as_fan, mine)).status_code == 201


async def test_many_who_come_at_once_do_not_all_pass_before_they_are_counted(api: Api) -> None:
    event_id = await api.sale(
        proofOfWork=True,
        maxSeatsPerFan=100,
        sections=[{"name": "Floor", "priceCategory": "Rear", "capacity": 200}],
    )
    answers = await asyncio.gather(*(hold(api, event_id, api.as_fan) for _ in range(30)))
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(201) <= UNPAID_HOLDS_MAX
    assert set(statuses) == {201, 403}


async def test_a_request_sent_again_with_its_key_costs_no_challenge(api: Api) -> None:
    event_id = await api.sale(proofOfWork=True)
    headers = api.as_fan | {"Idempotency-Key": "one"}
    first = await hold(api, event_id, headers)
    for _ in range(2 * UNPAID_HOLDS_MAX):
        again = await hold(api, event_id, headers)
        assert again.json() == first.json()
    for _ in range(UNPAID_HOLDS_MAX - 1):
        assert (await hold(api, event_id, api.as_fan)).status_code == 201
    await challenged(api, event_id, api.as_fan)
    assert (await hold(api, event_id, headers)).json() == first.json()


async def test_work_that_was_done_for_a_hold_that_is_not_to_be_had_counts_for_another(
    api: Api,
) -> None:
    event_id = await api.sale(proofOfWork=True)
    await many_holds(api, event_id, api.as_fan)
    solution = solve(await challenged(api, event_id, api.as_fan))
    too_many = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"section": "Floor", "quantity": 11},
        headers=api.as_fan | {"Altcha-Payload": solution},
    )
    assert too_many.status_code == 409, too_many.text
    assert (await hold(api, event_id, api.as_fan, solution)).status_code == 201
