"""A good body with one odd thing in it is either taken or refused by its path, never a fault."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.routes.conftest import Api, Json, event_body, seat_id

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**40,
    "",
    " ",
    "\0",
    "0",
    "\N{ZERO WIDTH SPACE}",
    "\N{RIGHT-TO-LEFT OVERRIDE}abc",
    "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{MICROPHONE}",
    "x" * 10_001,
    "$where",
    "a.b",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00",
    "2030-02-30T00:00:00Z",
    "2030-06-01T00:00:00.123456789Z",
    "2030-06-01T23:59:60Z",
    [],
    [[]],
    {},
    {"$gt": ""},
    [None],
    ["x"] * 60,
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def with_odd(body: Json, rng: random.Random) -> Json:
    """The body with one place replaced, taken out, doubled or added to."""
    odd = copy.deepcopy(body)
    *way, last = rng.choice(list(places(odd)))
    parent: Any = odd
    for step in way:
        parent = parent[step]
    kind = rng.choice(("replace", "replace", "replace", "remove", "add", "double"))
    if kind == "replace":
        parent[last] = rng.choice(ODD)
    elif kind == "remove":
        del parent[last]
    elif kind == "add" and isinstance(parent, dict):
        parent[rng.choice(("extra", "$set", "", "\0", "_id"))] = rng.choice(ODD)
    elif isinstance(parent, list):
        parent.append(parent[last])
    return odd


@pytest.mark.parametrize("seed", range(8))
async def test_an_odd_event_is_taken_or_refused(api: Api, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        body = with_odd(event_body(), rng)
        answer = await api.http.post(
            "/v1/events",
            content=json.dumps(body).encode(),
            headers={**api.as_organiser, "Content-Type": "application/json"},
        )
        assert answer.status_code in (201, 422), (body, answer.text)
        if answer.status_code == 422:
            assert all(error["path"] for error in answer.json()["errors"]), (body, answer.text)
        else:
            path = f"/v1/events/{answer.json()['eventId']}"
            for suffix in ("", "/seats", "/availability", "/dashboard"):
                seen = await api.http.get(path + suffix, headers=api.as_organiser)
                assert seen.status_code == 200, (body, seen.text)


@pytest.mark.parametrize("seed", range(4))
async def test_an_odd_hold_order_or_profile_is_taken_or_refused(api: Api, seed: int) -> None:
    rng = random.Random(seed)
    event_id = await api.sale(maxSeatsPerFan=1000)
    holds = f"/v1/events/{event_id}/holds"
    bodies: list[tuple[str, str, Json]] = [
        ("POST", holds, {"seatIds": [seat_id(event_id, 0), seat_id(event_id, 1)]}),
        ("POST", holds, {"section": "Floor", "quantity": 1}),
        ("POST", holds, {"section": "A", "quantity": 1, "bestAvailable": True}),
        ("POST", "/v1/orders", {"holdId": "hold_x"}),
        ("PUT", "/v1/me", {"name": "Zoë", "email": "zoe@example.org"}),
    ]
    for _ in range(60):
        method, path, good = rng.choice(bodies)
        body = with_odd(good, rng)
        answer = await api.http.request(
            method,
            path,
            content=json.dumps(body).encode(),
            headers={**api.as_fan, "Content-Type": "application/json"},
        )
        assert answer.status_code in (200, 201, 404, 409, 422), (body, answer.text)
