"""What an event has earned, for its organiser and nobody else."""

import csv
import io

from tests.routes.conftest import Api, assert_invalid, assert_problem, seat_id


async def set_fees(api: Api, event_id: str, **terms: int) -> None:
    answer = await api.http.put(
        f"/v1/admin/events/{event_id}/fees", json=terms, headers=api.as_admin
    )
    assert answer.status_code == 200, answer.text


async def test_a_statement_says_what_was_sold_refunded_and_kept(api: Api) -> None:
    event_id = await api.sale()
    await set_fees(api, event_id, perSeat=50, basisPoints=250)
    order = await api.confirmed_order(event_id, 0, 1)
    await api.http.post(
        f"/v1/orders/{order['orderId']}/refunds",
        json={"seatIds": [seat_id(event_id, 1)]},
        headers=api.as_organiser,
    )
    answer = await api.http.get(f"/v1/events/{event_id}/statement", headers=api.as_organiser)
    shown = answer.json()
    names = ("gross", "refunds", "fees", "net", "atProvider", "owedToFans")
    assert [shown[name]["amount"] for name in names] == [19000, 9500, 288, 9212, 19000, 9500]
    assert shown["terms"] == {
        "perSeat": {"amount": 50, "currency": "EUR"},
        "basisPoints": 250,
    }
    page = (await api.http.get("/v1/statements", headers=api.as_organiser)).json()
    assert page == {"items": [shown], "nextCursor": None}


async def test_a_statement_is_also_a_table_and_a_page_to_print(api: Api) -> None:
    event_id = await api.sale()
    await api.confirmed_order(event_id, 0)
    table = await api.http.get(f"/v1/events/{event_id}/statement.csv", headers=api.as_organiser)
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    assert 'filename="' in table.headers["content-disposition"]
    (line,) = csv.DictReader(io.StringIO(table.content.decode("utf-8-sig")))
    assert (line["cause"], line["gross"], line["currency"]) == ("sale", "95.00", "EUR")
    printed = await api.http.get(f"/v1/events/{event_id}/statement.pdf", headers=api.as_organiser)
    assert printed.headers["content-type"] == "application/pdf"
    assert printed.content.startswith(b"%PDF-")


async def test_nobody_else_sees_a_statement(api: Api) -> None:
    event_id = await api.sale()
    for ending in ("", ".csv", ".pdf"):
        path = f"/v1/events/{event_id}/statement{ending}"
        other = await api.http.get(path, headers=api.as_role("org_other", "organiser"))
        assert_problem(other, 404, "not-found")
        assert_problem(await api.http.get(path, headers=api.as_fan), 403, "forbidden")
        assert_problem(await api.http.get(path), 401, "unauthenticated")
    others = await api.http.get("/v1/statements", headers=api.as_role("org_other", "organiser"))
    assert others.json()["items"] == []


async def test_only_an_admin_sets_fees_that_can_be(api: Api) -> None:
    event_id = await api.sale()
    path = f"/v1/admin/events/{event_id}/fees"
    denied = await api.http.put(path, json={"perSeat": 0}, headers=api.as_organiser)
    assert_problem(denied, 403, "forbidden")
    wrong = {"perSeat": -1, "basisPoints": 10_001}
    answer = await api.http.put(path, json=wrong, headers=api.as_admin)
    assert_invalid(answer, "perSeat", "basisPoints")
    missing = await api.http.put("/v1/admin/events/evt_x/fees", json={}, headers=api.as_admin)
    assert_problem(missing, 404, "not-found")
