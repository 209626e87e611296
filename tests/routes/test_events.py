"""Making, publishing, listing and reading events."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.routes.conftest import Api, assert_invalid, assert_problem, event_body
from ticketing.clock import rfc3339


def section(**seats: Any) -> dict[str, Any]:
    return {"name": "A", "priceCategory": "Front", **seats}


async def test_an_organiser_makes_an_event_and_gets_it_back_without_its_seats(api: Api) -> None:
    body = event_body()
    made = await api.http.post("/v1/events", json=body, headers=api.as_organiser)

    assert made.status_code == 201
    event = made.json()
    assert made.headers["location"] == f"/v1/events/{event['eventId']}"
    assert event["eventId"].startswith("evt_")
    assert (event["organiserId"], event["status"], event["seatCount"]) == ("org_one", "draft", 20)
    assert {name: event[name] for name in body if name != "sections"} == {
        name: body[name] for name in body if name != "sections"
    }
    assert event["sections"] == [
        {
            "name": "A",
            "priceCategory": "Front",
            "rows": [{"name": "1", "count": 5}, {"name": "2", "count": 5}],
        },
        {"name": "Floor", "priceCategory": "Rear", "capacity": 10},
    ]


async def test_only_organisers_and_admins_make_events(api: Api) -> None:
    assert_problem(await api.http.post("/v1/events", json=event_body()), 401, "unauthenticated")
    refused = await api.http.post("/v1/events", json=event_body(), headers=api.as_fan)
    assert_problem(refused, 403, "forbidden")
    made = await api.http.post("/v1/events", json=event_body(), headers=api.as_admin)
    assert made.status_code == 201


async def test_a_repeated_request_with_its_key_makes_one_event(api: Api) -> None:
    body, headers = event_body(), {**api.as_organiser, "Idempotency-Key": "spring-tour"}
    first = await api.http.post("/v1/events", json=body, headers=headers)
    again = await api.http.post("/v1/events", json=body, headers=headers)
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()

    other = await api.http.post("/v1/events", json=body | {"name": "Other"}, headers=headers)
    assert_problem(other, 422, "idempotency-key-reused")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": None}, "name"),
        ({"surprise": 1}, "surprise"),
        ({"startsAt": "tomorrow"}, "startsAt"),
        ({"startsAt": "2030-01-01T00:00:00"}, "startsAt"),
        ({"timezone": "Europe/Atlantis"}, "timezone"),
        ({"currency": "EUX"}, "currency"),
        ({"maxSeatsPerFan": 0}, "maxSeatsPerFan"),
        ({"maxSeatsPerFan": 2**70}, "maxSeatsPerFan"),
        ({"priceCategories": [{"name": "Front", "price": -1}]}, "priceCategories[0].price"),
        ({"priceCategories": [{"name": "Front", "price": 9.5}]}, "priceCategories[0].price"),
        ({"priceCategories": [{"name": "Front"}]}, "priceCategories[0].price"),
        (
            {"sections": [{"name": "A", "priceCategory": "Front", "capacity": 0}]},
            "sections[0].capacity",
        ),
        ({"sections": [{"priceCategory": "Front", "capacity": 1}]}, "sections[0].name"),
        (
            {
                "sections": [
                    {"name": "A", "priceCategory": "Front", "rows": [{"name": "1", "cuont": 1}]}
                ]
            },
            "sections[0].rows[0].cuont",
        ),
        (
            {
                "sections": [
                    {
                        "name": "A",
                        "priceCategory": "Front",
                        "rows": [{"name": "1", "seats": ["1", 2]}],
                    }
                ]
            },
            "sections[0].rows[0].seats[1]",
        ),
    ],
)
async def test_a_malformed_event_is_refused_naming_the_path(
    api: Api, changes: dict[str, Any], path: str
) -> None:
    refused = await api.http.post(
        "/v1/events", json=event_body(**changes), headers=api.as_organiser
    )
    assert_invalid(refused, path)


async def test_a_missing_field_is_named(api: Api) -> None:
    body = event_body()
    del body["currency"]
    refused = await api.http.post("/v1/events", json=body, headers=api.as_organiser)
    assert_invalid(refused, "currency")


async def test_a_draft_is_seen_by_its_organiser_and_admins_alone(api: Api) -> None:
    path = f"/v1/events/{(await api.event())['eventId']}"
    for headers in ({}, api.as_fan, api.as_other_organiser):
        assert_problem(await api.http.get(path, headers=headers), 404, "not-found")
        for suffix in ("/seats", "/availability"):
            assert_problem(await api.http.get(path + suffix, headers=headers), 404, "not-found")
    for headers in (api.as_organiser, api.as_admin):
        seen = await api.http.get(path, headers=headers)
        assert seen.status_code == 200
        assert seen.json()["status"] == "draft"


async def test_publishing_is_for_the_events_own_organiser_and_can_be_repeated(api: Api) -> None:
    event_id = (await api.event())["eventId"]
    path = f"/v1/events/{event_id}/publish"
    assert_problem(await api.http.post(path), 401, "unauthenticated")
    assert_problem(await api.http.post(path, headers=api.as_fan), 403, "forbidden")
    assert_problem(await api.http.post(path, headers=api.as_other_organiser), 404, "not-found")
    for _ in range(2):
        published = await api.http.post(path, headers=api.as_organiser)
        assert (published.status_code, published.json()["status"]) == (200, "published")


async def test_a_cancelled_event_cannot_be_published(api: Api) -> None:
    event_id = await api.sale()
    database = api.application.state["services"].database
    await database.events.update_one({"_id": event_id}, {"$set": {"status": "cancelled"}})
    refused = await api.http.post(f"/v1/events/{event_id}/publish", headers=api.as_organiser)
    assert_problem(refused, 409, "conflict")


async def test_a_published_event_shows_its_seats_counted(api: Api) -> None:
    event_id = await api.sale()
    seen = await api.http.get(f"/v1/events/{event_id}")
    assert seen.status_code == 200
    assert seen.json()["seats"] == {
        "total": 20,
        "available": 20,
        "held": 0,
        "sold": 0,
        "blocked": 0,
    }


async def test_an_unknown_event_is_not_found_whatever_its_name(api: Api) -> None:
    for name in ("evt_none", "%00", "%F0%9F%8E%AB", "x" * 3000, "...", "$where"):
        assert_problem(await api.http.get(f"/v1/events/{name}"), 404, "not-found")


async def test_the_list_has_published_events_soonest_first(api: Api) -> None:
    now = datetime.now(UTC)
    later = await api.sale(startsAt=rfc3339(now + timedelta(days=50)))
    sooner = await api.sale(startsAt=rfc3339(now + timedelta(days=40)))
    await api.event()
    listed = (await api.http.get("/v1/events")).json()
    assert [item["eventId"] for item in listed["items"]] == [sooner, later]
    assert listed["nextCursor"] is None


async def test_the_list_is_filtered(api: Api) -> None:
    now = datetime.now(UTC)
    waltz = await api.sale()
    opera = await api.sale(
        name="Die Zauberflöte", category="opera", startsAt=rfc3339(now + timedelta(days=90))
    )
    middle = rfc3339(now + timedelta(days=60))
    for query, expected in (
        ({"category": "opera"}, [opera]),
        ({"q": "zauberflote"}, [opera]),
        ({"q": "waltz winterland"}, [waltz]),
        ({"q": "!"}, []),
        ({"from": middle}, [opera]),
        ({"to": middle}, [waltz]),
        ({"status": "cancelled"}, []),
        ({"from": middle.replace("Z", "+00:00")}, [opera]),
    ):
        listed = await api.http.get("/v1/events", params=query)
        assert [item["eventId"] for item in listed.json()["items"]] == expected, query


async def test_the_list_is_paged(api: Api) -> None:
    ids = [await api.sale(name=f"Night {index}") for index in range(3)]
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        query = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
        page = (await api.http.get("/v1/events", params=query)).json()
        seen += [item["eventId"] for item in page["items"]]
        cursor = page["nextCursor"]
    assert cursor is None
    assert sorted(seen) == sorted(ids)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=ten", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("cursor=%00", "cursor"),
        ("cursor=bm9uZQ", "cursor"),
        ("status=sold", "status"),
        ("status=draft", "status"),
        ("from=yesterday", "from"),
        ("from=2030-01-01T00:00:00", "from"),
        ("from=12", "from"),
        ("to=0001-01-01T00:00:00%2B23:00", "to"),
        ("mine=maybe", "mine"),
        ("q=" + "x" * 201, "q"),
    ],
)
async def test_a_malformed_query_is_refused_naming_the_parameter(
    api: Api, query: str, path: str
) -> None:
    assert_invalid(await api.http.get(f"/v1/events?{query}"), path)


async def test_a_search_for_nothing_finds_every_event(api: Api) -> None:
    event_id = await api.sale()
    for query, expected in (("q=", [event_id]), ("q=%20", [event_id]), ("q=nowhere", [])):
        items = (await api.http.get(f"/v1/events?{query}")).json()["items"]
        assert [item["eventId"] for item in items] == expected


async def test_an_organiser_lists_their_own_drafts_too(api: Api) -> None:
    draft, published = (await api.event())["eventId"], await api.sale()
    for query, expected in (
        ("", {draft, published}),
        ("&status=draft", {draft}),
        ("&status=published", {published}),
    ):
        listed = await api.http.get(f"/v1/events?mine=true{query}", headers=api.as_organiser)
        assert {item["eventId"] for item in listed.json()["items"]} == expected
    others = await api.http.get("/v1/events?mine=true", headers=api.as_other_organiser)
    assert others.json()["items"] == []
    assert_problem(await api.http.get("/v1/events?mine=true"), 401, "unauthenticated")
    assert_problem(await api.http.get("/v1/events?mine=true", headers=api.as_fan), 403, "forbidden")


async def test_an_organiser_moves_an_event_and_nobody_else_does(api: Api) -> None:
    event_id = await api.sale()
    path = f"/v1/events/{event_id}/move"
    wanted = {"startsAt": "2031-01-02T19:00:00+01:00", "venueName": "Fillmore"}
    moved = await api.http.post(path, json=wanted, headers=api.as_organiser)
    assert moved.status_code == 200, moved.text
    assert moved.json()["startsAt"] == "2031-01-02T18:00:00.000Z"
    assert moved.json()["venueName"] == "Fillmore"
    other = await api.http.post(path, json=wanted, headers=api.as_role("org_x", "organiser"))
    assert_problem(other, 404, "not-found")
    assert_problem(await api.http.post(path, json=wanted, headers=api.as_fan), 403, "forbidden")
    wrong = await api.http.post(path, json={"timezone": "x"}, headers=api.as_organiser)
    assert_invalid(wrong, "timezone")
    cancelled = await api.http.post(f"/v1/events/{event_id}/cancel", headers=api.as_organiser)
    assert cancelled.status_code < 300
    late = await api.http.post(path, json={"venueName": "X"}, headers=api.as_organiser)
    assert_problem(late, 409, "conflict")
