"""The seat map and its compact form."""

from tests.routes.conftest import Api, assert_invalid, seat_id


async def test_the_seat_map_has_every_seat_in_plan_order_and_its_state(api: Api) -> None:
    event_id = await api.sale()
    await api.hold(event_id, 1)
    await api.confirmed_order(event_id, 6)
    answer = await api.http.get(f"/v1/events/{event_id}/seats")
    assert answer.status_code == 200
    found = answer.json()
    assert found["eventId"] == event_id
    assert found["version"] == 1
    numbered, floor = found["sections"]
    assert (numbered["name"], numbered["priceCategory"]) == ("A", "Front")
    assert numbered["price"] == {"amount": 9500, "currency": "EUR"}
    assert numbered["seats"][0] == {
        "seatId": seat_id(event_id, 0),
        "row": "1",
        "number": "1",
        "status": "available",
    }
    states = [seat["status"] for seat in numbered["seats"]]
    assert states == ["available", "held", *["available"] * 4, "sold", *["available"] * 3]
    assert floor["seats"][0] == {
        "seatId": seat_id(event_id, 10),
        "row": None,
        "number": None,
        "status": "available",
    }
    assert "fan" not in answer.text
    assert "hold_" not in answer.text


async def test_availability_tells_the_same_with_one_character_a_seat(api: Api) -> None:
    event_id = await api.sale()
    await api.hold(event_id, 1)
    await api.confirmed_order(event_id, 6)
    found = (await api.http.get(f"/v1/events/{event_id}/availability")).json()
    assert found == {
        "eventId": event_id,
        "version": 1,
        "sections": [
            {"name": "A", "states": "ahaaaasaaa"},
            {"name": "Floor", "states": "a" * 10},
        ],
    }


async def test_one_section_can_be_asked_for_and_an_unknown_one_is_refused(api: Api) -> None:
    event_id = await api.sale()
    for form in ("seats", "availability"):
        path = f"/v1/events/{event_id}/{form}"
        one = (await api.http.get(path, params={"section": "Floor"})).json()
        assert [section["name"] for section in one["sections"]] == ["Floor"]
        assert len(one["sections"][0].get("seats") or one["sections"][0]["states"]) == 10
        assert_invalid(await api.http.get(path, params={"section": "Roof"}), "section")


async def test_what_the_client_has_already_is_answered_with_304(api: Api) -> None:
    event_id = await api.sale()
    for form in ("seats", "availability"):
        path = f"/v1/events/{event_id}/{form}"
        tag = (await api.http.get(path)).headers["etag"]
        assert tag.startswith('"')
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            answer = await api.http.get(path, headers={"If-None-Match": known})
            assert (answer.status_code, answer.content) == (304, b"")
            assert answer.headers["etag"] == tag
        for unknown in ('"other"', "W/", "", tag.strip('"')):
            answer = await api.http.get(path, headers={"If-None-Match": unknown})
            assert answer.status_code == 200


async def test_a_seat_that_changes_changes_the_tag_before_the_counters_move(api: Api) -> None:
    event_id = await api.sale()
    path = f"/v1/events/{event_id}/availability"
    before = (await api.http.get(path)).headers["etag"]
    held = await api.hold(event_id, 0)
    assert (await api.http.get(path, headers={"If-None-Match": before})).status_code == 200
    await api.http.delete(f"/v1/holds/{held['holdId']}", headers=api.as_fan)
    assert (await api.http.get(path, headers={"If-None-Match": before})).status_code == 304
