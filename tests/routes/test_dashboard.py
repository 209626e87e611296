"""The figures of a sale by REST."""

from datetime import UTC, datetime

from tests.routes.conftest import Api, assert_problem, set_counters
from ticketing.mongo import Client


async def test_the_dashboard_is_for_the_events_organiser_and_admins(api: Api) -> None:
    event_id = await api.sale()
    for path in (f"/v1/events/{event_id}/dashboard", f"/v1/events/{event_id}/dashboard/sales"):
        assert_problem(await api.http.get(path), 401, "unauthenticated")
        assert_problem(await api.http.get(path, headers=api.as_fan), 403, "forbidden")
        assert_problem(await api.http.get(path, headers=api.as_other_organiser), 404, "not-found")
        for headers in (api.as_organiser, api.as_admin):
            assert (await api.http.get(path, headers=headers)).status_code == 200
    unknown = await api.http.get("/v1/events/evt_none/dashboard", headers=api.as_organiser)
    assert_problem(unknown, 404, "not-found")


async def test_the_dashboard_of_a_fresh_event_has_all_its_seats_available(api: Api) -> None:
    event_id = await api.sale()
    path = f"/v1/events/{event_id}/dashboard"
    found = (await api.http.get(path, headers=api.as_organiser)).json()
    counts = {"available": 20, "held": 0, "sold": 0, "blocked": 0}
    half = {"total": 10, "available": 10, "held": 0, "sold": 0, "blocked": 0}
    nothing = {"amount": 0, "currency": "EUR"}
    assert found == {
        "eventId": event_id,
        "version": 1,
        "seats": {"total": 20, **counts},
        "orders": {"pendingPayment": 0, "confirmed": 0, "expired": 0, "cancelled": 0},
        "revenue": nothing,
        "refunds": nothing,
        "holds": {"created": 0, "released": 0, "expired": 0},
        "sections": [
            {"name": "A", **half, "revenue": nothing},
            {"name": "Floor", **half, "revenue": nothing},
        ],
        "updatedAt": found["updatedAt"],
    }
    assert found["updatedAt"].endswith("Z")


async def test_the_sales_are_told_with_amounts_in_the_minor_unit(api: Api, client: Client) -> None:
    event_id = await api.sale()
    at = datetime(2030, 6, 1, 12, 0, 7, tzinfo=UTC)
    await set_counters(
        client,
        event_id,
        recentSales=[{"reference": "7KQ2M9XR", "seats": 2, "amount": 19000, "at": at}],
        salesByMinute=[{"minute": at.replace(second=0), "orders": 1, "seats": 2, "amount": 19000}],
    )
    path = f"/v1/events/{event_id}/dashboard/sales"
    assert (await api.http.get(path, headers=api.as_organiser)).json() == {
        "eventId": event_id,
        "version": 2,
        "currency": "EUR",
        "recentSales": [
            {
                "reference": "7KQ2M9XR",
                "seats": 2,
                "amount": 19000,
                "at": "2030-06-01T12:00:07.000Z",
            }
        ],
        "salesByMinute": [
            {"minute": "2030-06-01T12:00:00.000Z", "orders": 1, "seats": 2, "amount": 19000}
        ],
    }
