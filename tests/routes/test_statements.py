"""What an event has earned, for its organiser and nobody else."""

import csv
import io

from tests import pdf
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
    assert shown["counts"] == {"sales": 1, "refunds": 1}
    assert (shown["periodStartsAt"], shown["periodEndsAt"]) == (None, None)
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


async def test_a_printed_statement_shows_any_name_and_all_amounts(api: Api) -> None:
    names = ("Zoë 李 O'Brien <script>", "مهرجان الصيف", "#set page() $x$ *b*")
    for name in names:
        event_id = await api.sale(name=name, venueName="Café Σ", currency="KWD")
        await set_fees(api, event_id, perSeat=50, basisPoints=250)
        await api.confirmed_order(event_id, 0)
    one = await api.http.get(f"/v1/events/{event_id}/statement.pdf", headers=api.as_organiser)
    [page] = pdf.pages(one.content)
    for shown in (names[-1], "Café Σ", "9.500 KWD", "-0.288 KWD", "9.212 KWD"):
        assert shown in page.text
    together = await api.http.get("/v1/statements.pdf", headers=api.as_organiser)
    assert together.headers["content-type"] == "application/pdf"
    text = "".join(page.text for page in pdf.pages(together.content))
    for shown in (names[0], names[2], "All events in KWD", "28.500 KWD", "27.636 KWD"):
        assert shown in text


async def test_a_statement_of_a_period_has_nothing_from_before_and_after(api: Api) -> None:
    event_id = await api.sale()
    await api.confirmed_order(event_id, 0)
    for path in (f"/v1/events/{event_id}/statement", "/v1/statements"):
        for query, gross in (
            ({"from": "2001-01-01T00:00:00Z", "to": "2099-01-01T00:00:00+02:00"}, 9500),
            ({"from": "2099-01-01T00:00:00Z"}, 0),
            ({"to": "2001-01-01T00:00:00Z"}, 0),
        ):
            answer = await api.http.get(path, params=query, headers=api.as_organiser)
            shown = answer.json()
            shown = shown.get("items", [shown])[0]
            assert (shown["gross"]["amount"], shown["counts"]["sales"]) == (gross, gross // 9500)
            asked = query.get("from", "").replace("00Z", "00.000Z") or None
            assert shown["periodStartsAt"] == asked
            table = await api.http.get(f"{path}.csv", params=query, headers=api.as_organiser)
            lines = table.content.decode("utf-8-sig").splitlines()
            assert len(lines) == 1 + gross // 9500
            printed = await api.http.get(f"{path}.pdf", params=query, headers=api.as_organiser)
            assert printed.status_code == 200
        for ending in ("", ".csv", ".pdf"):
            backwards = {"from": "2030-01-01T00:00:00Z", "to": "2030-01-01T00:00:00Z"}
            wrong = await api.http.get(path + ending, params=backwards, headers=api.as_organiser)
            assert_invalid(wrong, "to")
            wrong = await api.http.get(
                path + ending, params={"from": "yesterday"}, headers=api.as_organiser
            )
            assert_invalid(wrong, "from")


async def test_an_admin_may_see_the_statements_of_any_organiser(api: Api) -> None:
    event_id = await api.sale()
    await api.confirmed_order(event_id, 0)
    for ending in ("", ".csv", ".pdf"):
        path = f"/v1/statements{ending}?organiserId=org_one"
        for headers in (api.as_organiser, api.as_admin):
            seen = await api.http.get(path, headers=headers)
            assert seen.status_code == 200
        other = await api.http.get(path, headers=api.as_other_organiser)
        assert_problem(other, 404, "not-found")
    seen = await api.http.get("/v1/statements?organiserId=org_one", headers=api.as_admin)
    assert [item["eventId"] for item in seen.json()["items"]] == [event_id]
    table = await api.http.get("/v1/statements.csv?organiserId=org_one", headers=api.as_admin)
    (line,) = csv.DictReader(io.StringIO(table.content.decode("utf-8-sig")))
    assert (line["eventId"], line["net"]) == (event_id, "95.00")


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
