"""Placing, looking at and releasing holds."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.routes.conftest import Api, assert_invalid, assert_problem, seat_id
from ticketing.clock import rfc3339


async def test_a_fan_holds_the_seats_they_name(api: Api) -> None:
    event_id = await api.sale()
    before = datetime.now(UTC)
    answer = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"seatIds": [seat_id(event_id, 5), seat_id(event_id, 4)]},
        headers=api.as_fan,
    )
    assert answer.status_code == 201
    hold = answer.json()
    assert answer.headers["location"] == f"/v1/holds/{hold['holdId']}"
    assert hold["eventId"] == event_id
    assert hold["seats"] == [
        {
            "seatId": seat_id(event_id, 4),
            "section": "A",
            "row": "1",
            "number": "5",
            "price": {"amount": 9500, "currency": "EUR"},
        },
        {
            "seatId": seat_id(event_id, 5),
            "section": "A",
            "row": "2",
            "number": "1",
            "price": {"amount": 9500, "currency": "EUR"},
        },
    ]
    assert hold["total"] == {"amount": 19000, "currency": "EUR"}
    left = datetime.fromisoformat(hold["expiresAt"]) - before
    assert timedelta(seconds=598) < left < timedelta(seconds=603)


async def test_any_seats_of_an_area_and_the_best_seats_can_be_held(api: Api) -> None:
    event_id = await api.sale()
    path = f"/v1/events/{event_id}/holds"
    area = await api.http.post(path, json={"section": "Floor", "quantity": 2}, headers=api.as_fan)
    assert area.status_code == 201
    assert {(seat["section"], seat["row"]) for seat in area.json()["seats"]} == {("Floor", None)}
    best = await api.http.post(
        path, json={"quantity": 3, "bestAvailable": True, "section": "A"}, headers=api.as_fan
    )
    assert best.status_code == 201
    assert len({seat["row"] for seat in best.json()["seats"]}) == 1
    anywhere = await api.http.post(
        path, json={"quantity": 1, "bestAvailable": True}, headers=api.as_fan
    )
    assert anywhere.status_code == 201


async def test_only_fans_hold_seats(api: Api) -> None:
    event_id = await api.sale()
    path, body = f"/v1/events/{event_id}/holds", {"seatIds": [seat_id(event_id, 0)]}
    assert_problem(await api.http.post(path, json=body), 401, "unauthenticated")
    for headers in (api.as_organiser, api.as_admin):
        assert_problem(await api.http.post(path, json=body, headers=headers), 403, "forbidden")
    assert (await api.http.post(path, json=body, headers=api.as_fan)).status_code == 201


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "body"),
        ([], "body"),
        (None, "body"),
        ({"seatIds": []}, "seatIds"),
        ({"seatIds": ["x"] * 51}, "seatIds"),
        ({"seatIds": "x"}, "seatIds"),
        ({"seatIds": ["x", 2]}, "seatIds[1]"),
        ({"seatIds": ["x", "y", "x"]}, "seatIds[2]"),
        ({"seatIds": ["x"], "quantity": 1}, "quantity"),
        ({"seatIds": ["x"], "bestAvailable": False}, "bestAvailable"),
        ({"seatIds": ["x"], "section": "A"}, "section"),
        ({"section": "Floor"}, "quantity"),
        ({"bestAvailable": True}, "quantity"),
        ({"quantity": 2}, "section"),
        ({"quantity": 2, "bestAvailable": False}, "section"),
        ({"quantity": 0, "section": "Floor"}, "quantity"),
        ({"quantity": 51, "section": "Floor"}, "quantity"),
        ({"quantity": -1, "bestAvailable": True}, "quantity"),
        ({"quantity": 10**30, "section": "Floor"}, "quantity"),
        ({"quantity": 1.0, "section": "Floor"}, "quantity"),
        ({"quantity": True, "section": "Floor"}, "quantity"),
        ({"quantity": "1", "section": "Floor"}, "quantity"),
        ({"quantity": 1, "section": "Roof"}, "section"),
        ({"quantity": 1, "section": None}, "section"),
        ({"quantity": 1, "section": "Floor", "fanId": "fan_two"}, "fanId"),
    ],
)
async def test_a_body_that_is_none_of_the_three_forms_is_refused(
    api: Api, body: Any, path: str
) -> None:
    event_id = await api.sale()
    refused = await api.http.post(f"/v1/events/{event_id}/holds", json=body, headers=api.as_fan)
    assert_invalid(refused, path)


async def test_seats_of_another_event_are_refused_by_their_place_in_the_list(api: Api) -> None:
    event_id, other = await api.sale(), await api.sale()
    refused = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"seatIds": [seat_id(event_id, 0), seat_id(other, 0)]},
        headers=api.as_fan,
    )
    assert_invalid(refused, "seatIds[1]")


async def test_taken_seats_are_named_and_nothing_is_held(api: Api) -> None:
    event_id = await api.sale()
    await api.hold(event_id, 1)
    refused = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"seatIds": [seat_id(event_id, 0), seat_id(event_id, 1)]},
        headers=api.as_other_fan,
    )
    problem = assert_problem(refused, 409, "seats-unavailable")
    assert problem["unavailable"] == [seat_id(event_id, 1)]
    states = (await api.http.get(f"/v1/events/{event_id}/availability?section=A")).json()
    assert states["sections"][0]["states"] == "ahaaaaaaaa"


async def test_too_few_seats_are_told_by_their_count(api: Api) -> None:
    event_id = await api.sale(maxSeatsPerFan=50)
    refused = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"section": "Floor", "quantity": 11},
        headers=api.as_fan,
    )
    assert assert_problem(refused, 409, "not-enough-seats")["available"] == 10


async def test_a_fan_gets_no_more_seats_than_the_limit(api: Api) -> None:
    event_id = await api.sale(maxSeatsPerFan=2)
    await api.hold(event_id, 0, 1)
    refused = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"seatIds": [seat_id(event_id, 2)]},
        headers=api.as_fan,
    )
    problem = assert_problem(refused, 409, "limit-exceeded")
    assert (problem["limit"], problem["have"]) == (2, 2)


async def test_outside_the_sale_window_nothing_is_held(api: Api) -> None:
    now = datetime.now(UTC)
    opens, closes = rfc3339(now + timedelta(hours=1)), rfc3339(now + timedelta(hours=2))
    event_id = await api.sale(saleStartsAt=opens, saleEndsAt=closes)
    refused = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"seatIds": [seat_id(event_id, 0)]},
        headers=api.as_fan,
    )
    problem = assert_problem(refused, 403, "sale-not-open")
    assert (problem["saleStartsAt"], problem["saleEndsAt"]) == (opens, closes)


async def test_a_draft_and_an_unknown_event_are_not_found(api: Api) -> None:
    draft = (await api.event())["eventId"]
    for event_id in (draft, "evt_none"):
        refused = await api.http.post(
            f"/v1/events/{event_id}/holds",
            json={"seatIds": [seat_id(event_id, 0)]},
            headers=api.as_fan,
        )
        assert_problem(refused, 404, "not-found")


async def test_a_repeated_request_with_its_key_is_the_same_hold(api: Api) -> None:
    event_id = await api.sale()
    path = f"/v1/events/{event_id}/holds"
    body = {"seatIds": [seat_id(event_id, 0)]}
    bare = {**api.as_fan, "Idempotency-Key": "abc"}
    quoted = {**api.as_fan, "Idempotency-Key": '"abc"'}
    first = await api.http.post(path, json=body, headers=bare)
    again = await api.http.post(path, json=body, headers=quoted)
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    other = await api.http.post(path, json={"seatIds": [seat_id(event_id, 1)]}, headers=bare)
    assert_problem(other, 422, "idempotency-key-reused")
    another_fan = await api.http.post(
        path,
        json={"seatIds": [seat_id(event_id, 1)]},
        headers={**api.as_other_fan, "Idempotency-Key": "abc"},
    )
    assert another_fan.status_code == 201


@pytest.mark.parametrize("key", [b"", b'""', b"x" * 256, b"a b", b"\xe9", b"a\x00"])
async def test_a_malformed_idempotency_key_is_refused(api: Api, key: bytes) -> None:
    event_id = await api.sale()
    refused = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"seatIds": [seat_id(event_id, 0)]},
        headers=[*api.as_fan.items(), (b"Idempotency-Key", key)],
    )
    assert_invalid(refused, "Idempotency-Key")


async def test_the_longest_idempotency_key_is_taken(api: Api) -> None:
    event_id = await api.sale()
    held = await api.http.post(
        f"/v1/events/{event_id}/holds",
        json={"seatIds": [seat_id(event_id, 0)]},
        headers={**api.as_fan, "Idempotency-Key": "x" * 255},
    )
    assert held.status_code == 201


async def test_a_hold_is_seen_by_its_fan_alone(api: Api) -> None:
    hold = await api.hold(await api.sale(), 0)
    path = f"/v1/holds/{hold['holdId']}"
    assert (await api.http.get(path, headers=api.as_fan)).json() == hold
    assert_problem(await api.http.get(path, headers=api.as_other_fan), 404, "not-found")
    assert_problem(await api.http.get(path, headers=api.as_organiser), 403, "forbidden")
    assert_problem(await api.http.get(path), 401, "unauthenticated")


async def test_a_released_hold_is_gone_its_seats_are_free_and_releasing_again_is_no_error(
    api: Api,
) -> None:
    event_id = await api.sale()
    path = f"/v1/holds/{(await api.hold(event_id, 0))['holdId']}"
    assert_problem(await api.http.delete(path, headers=api.as_other_fan), 404, "not-found")
    for _ in range(2):
        released = await api.http.delete(path, headers=api.as_fan)
        assert (released.status_code, released.content) == (204, b"")
    assert_problem(await api.http.get(path, headers=api.as_fan), 410, "hold-expired")
    states = (await api.http.get(f"/v1/events/{event_id}/availability?section=A")).json()
    assert states["sections"][0]["states"] == "a" * 10


async def test_a_hold_whose_time_is_over_is_gone_though_nobody_has_swept(
    api: Api,
) -> None:
    event_id = await api.sale()
    hold = await api.hold(event_id, 0)
    database = api.application.state["services"].database
    await database.seats.update_many(
        {"holdId": hold["holdId"]}, {"$set": {"heldUntil": datetime.now(UTC)}}
    )
    gone = await api.http.get(f"/v1/holds/{hold['holdId']}", headers=api.as_fan)
    assert_problem(gone, 410, "hold-expired")


@pytest.mark.parametrize("hold_id", ["x", "hold_", "hold_a.b.c.d", "%00", "hold_%F0%9F%8E%AB"])
async def test_an_unknown_hold_is_not_found(api: Api, hold_id: str) -> None:
    for method in ("GET", "DELETE"):
        answer = await api.http.request(method, f"/v1/holds/{hold_id}", headers=api.as_fan)
        assert_problem(answer, 404, "not-found")
