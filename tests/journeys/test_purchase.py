"""A sale as fans and organisers live through it, against the whole service."""

import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.journeys.conftest import Sale, Service, eventually

# A hold of two seconds, a sweep each second, and room for a machine that is busy.
LAPSE_SECONDS_MAX = 8.0
# A worker killed inside a transaction leaves it open until the server ends it, after ten seconds
# and the time until it looks; the next worker waits for that.
OPEN_TRANSACTION_SECONDS_MAX = 40.0


# --- Buying ------------------------------------------------------------------------------------


def test_a_fan_holds_orders_pays_and_has_tickets_while_the_organiser_watches(
    service: Service,
) -> None:
    sale, fan = service.sale(), service.fan()
    assert sale.states() == "a" * 60

    hold = fan.hold(sale, 4, 5)
    assert hold["total"] == {"amount": 19_000, "currency": "EUR"}
    assert sale.states() == "aaaahh" + "a" * 54
    sale.wait_until_counted(held=2, available=58)

    order = fan.post("/v1/orders", {"holdId": hold["holdId"]})
    assert (order["status"], order["expiresAt"]) == ("pendingPayment", hold["expiresAt"])
    assert order["payment"] == {"status": "created"}

    paid = fan.pay(order)
    assert (paid["status"], paid["payment"]) == ("confirmed", {"status": "succeeded"})
    assert sale.states() == "aaaass" + "a" * 54
    tickets = fan.get("/v1/me/tickets")["items"]
    assert [(ticket["row"], ticket["number"]) for ticket in tickets] == [("1", "5"), ("1", "6")]
    assert len({ticket["code"] for ticket in tickets}) == 2

    counted = sale.wait_until_counted(sold=2, held=0, available=58)
    assert counted["revenue"] == {"amount": 19_000, "currency": "EUR"}
    assert counted["orders"] == {"pendingPayment": 0, "confirmed": 1, "expired": 0, "cancelled": 0}
    section, floor = counted["sections"]
    assert (section["sold"], section["revenue"]["amount"], floor["sold"]) == (2, 19_000, 0)


def test_a_declined_fan_may_try_again_and_then_has_tickets(service: Service) -> None:
    sale, fan = service.sale(), service.fan()
    order = fan.order(sale, 0)
    declined = fan.decline(order)
    assert (declined["status"], declined["payment"]) == ("pendingPayment", {"status": "failed"})
    assert sale.states()[0] == "h"
    paid = fan.pay(order)
    assert (paid["status"], paid["payment"]) == ("confirmed", {"status": "succeeded"})
    # Who pays at the provider once more has not bought twice.
    assert fan.pay(order) == paid
    assert len(fan.get("/v1/me/tickets")["items"]) == 1


def test_a_request_repeated_with_its_key_buys_once(service: Service) -> None:
    sale, fan = service.sale(), service.fan()
    path = f"/v1/events/{sale.event_id}/holds"
    body = {"section": "Floor", "quantity": 2}
    holds = [fan.ask("POST", path, body, **{"Idempotency-Key": "hold-1"}) for _ in range(2)]
    assert holds[0].json() == holds[1].json()
    wanted = {"holdId": holds[0].json()["holdId"]}
    orders = [
        fan.ask("POST", "/v1/orders", wanted, **{"Idempotency-Key": "order-1"}) for _ in range(2)
    ]
    assert [order.status_code for order in orders] == [201, 201]
    assert orders[0].json() == orders[1].json()
    assert sale.wait_until_counted(held=2)["orders"]["pendingPayment"] == 1


def test_what_a_fan_has_is_seen_by_that_fan_alone(service: Service) -> None:
    sale, fan, other = service.sale(), service.fan(), service.fan()
    first, second = fan.buy(sale, 0), fan.order(sale, 1)
    listed = fan.get("/v1/me/orders")["items"]
    assert [order["orderId"] for order in listed] == [second["orderId"], first["orderId"]]
    confirmed = fan.get("/v1/me/orders?status=confirmed")["items"]
    assert [order["orderId"] for order in confirmed] == [first["orderId"]]
    assert other.get("/v1/me/orders")["items"] == other.get("/v1/me/tickets")["items"] == []
    missing = other.ask("GET", f"/v1/orders/{first['orderId']}")
    assert missing.status_code == 404
    assert missing.json()["type"] == "urn:ticketing:problem:not-found"


# --- Giving up ---------------------------------------------------------------------------------


def test_an_unpaid_hold_lapses_its_order_expires_and_its_seats_are_sold_to_others(
    service: Service, impatient: str
) -> None:
    sale, fan, next_fan = service.sale(), service.fan(at=impatient), service.fan()
    hold = fan.hold(sale, 0, 1)
    order = fan.post("/v1/orders", {"holdId": hold["holdId"]})
    assert sale.states()[:2] == "hh"
    assert eventually(lambda: sale.states()[:2] == "aa", seconds_max=LAPSE_SECONDS_MAX)
    assert eventually(lambda: fan.see(order)["status"] == "expired")
    assert fan.ask("GET", f"/v1/holds/{hold['holdId']}").status_code == 410
    next_fan.buy(sale, 0, 1)
    counted = sale.wait_until_counted(sold=2, held=0)
    assert counted["orders"] == {"pendingPayment": 0, "confirmed": 1, "expired": 1, "cancelled": 0}
    assert counted["holds"] == {"created": 2, "released": 0, "expired": 1}


def test_who_pays_too_late_gets_the_same_seats_if_they_are_still_free(
    service: Service, impatient: str
) -> None:
    sale, fan = service.sale(), service.fan(at=impatient)
    order = fan.order(sale, 0)
    assert eventually(lambda: fan.see(order)["status"] == "expired", seconds_max=LAPSE_SECONDS_MAX)
    assert fan.pay(order)["status"] == "confirmed"
    assert sale.states()[0] == "s"


def test_who_pays_too_late_for_seats_that_are_gone_gets_the_money_back(
    service: Service, impatient: str
) -> None:
    sale, fan, faster = service.sale(), service.fan(at=impatient), service.fan()
    order = fan.order(sale, 0)
    assert eventually(lambda: sale.states()[0] == "a", seconds_max=LAPSE_SECONDS_MAX)
    faster.buy(sale, 0)
    late = fan.pay(order)
    assert (late["status"], late["payment"]) == ("expired", {"status": "succeeded"})
    assert [refund["amount"] for refund in late["refunds"]] == [9_500]
    assert eventually(lambda: fan.see(order)["refunds"][0]["status"] == "done")
    assert eventually(lambda: sale.dashboard()["refunds"]["amount"] == 9_500)
    assert sale.dashboard()["revenue"]["amount"] == 9_500


def test_a_cancelled_order_gives_back_seats_money_and_tickets(service: Service) -> None:
    sale, fan, next_fan = service.sale(), service.fan(), service.fan()
    order = fan.buy(sale, 7, 8)
    sale.wait_until_counted(sold=2)
    cancelled = fan.post(f"/v1/orders/{order['orderId']}/cancel")
    assert cancelled["status"] == "cancelled"
    assert sale.states()[7:9] == "aa"
    assert fan.get("/v1/me/tickets")["items"] == []
    assert eventually(lambda: fan.see(order)["refunds"][0]["status"] == "done")
    again = fan.ask("POST", f"/v1/orders/{order['orderId']}/cancel")
    assert (again.status_code, again.json()["state"]) == (409, "cancelled")
    counted = sale.wait_until_counted(sold=0, available=60)
    assert eventually(lambda: sale.dashboard()["refunds"]["amount"] == 19_000)
    assert (counted["revenue"]["amount"], counted["orders"]["cancelled"]) == (0, 1)
    next_fan.buy(sale, 7, 8)


def test_a_released_hold_frees_its_seats_at_once_and_expires_its_order(service: Service) -> None:
    sale, fan = service.sale(), service.fan()
    hold = fan.hold(sale, 3)
    order = fan.post("/v1/orders", {"holdId": hold["holdId"]})
    for _ in range(2):
        assert fan.ask("DELETE", f"/v1/holds/{hold['holdId']}").status_code == 204
        assert sale.states()[3] == "a"
    assert fan.see(order)["status"] == "expired"


# --- Watching ----------------------------------------------------------------------------------


def test_the_live_feed_shows_each_step_of_a_purchase(service: Service) -> None:
    sale, fan = service.sale(), service.fan()
    with watched(sale, service.url) as feed:
        first = next_document(feed)
        assert first == sale.dashboard()
        order = fan.order(sale, 0, 1)
        assert until(feed, lambda seen: seen["seats"]["held"] == 2)["orders"]["confirmed"] == 0
        paid_at = time.monotonic()
        fan.pay(order)
        shown = until(feed, lambda seen: seen["seats"]["sold"] == 2)
        assert time.monotonic() - paid_at < 5
        assert shown["revenue"]["amount"] == 19_000
        assert shown["version"] > first["version"]


def watched(sale: Sale, url: str) -> ClientConnection:
    """The organiser's connection to the event's live feed."""
    return connect(
        f"{url.replace('http', 'ws', 1)}/v1/events/{sale.event_id}/dashboard/live",
        subprotocols=["bearer", sale.organiser.bearer],  # type: ignore[list-item]
        proxy=None,
    )


def next_document(feed: ClientConnection) -> Any:
    return json.loads(feed.recv(timeout=10))


def until(feed: ClientConnection, true: Any) -> Any:
    """The first document of the feed for which it is true."""
    while not true(document := next_document(feed)):
        pass
    return document


# --- Losing a worker ---------------------------------------------------------------------------


def test_counters_are_exact_after_the_changes_worker_was_killed_in_the_middle_of_a_sale(
    service: Service,
) -> None:
    sale = service.sale()
    chance = random.Random(7)
    fates = [chance.choice(["buy", "buy", "leave", "release", "cancel"]) for _ in range(60)]

    def go(ordinal: int) -> None:
        fan = service.fan()
        order = fan.order(sale, ordinal)
        if fates[ordinal] in ("buy", "cancel"):
            fan.pay(order)
        if fates[ordinal] in ("cancel", "release"):
            fan.post(f"/v1/orders/{order['orderId']}/cancel")

    with ThreadPoolExecutor(4) as fans:
        for first in range(0, 60, 20):
            going = [fans.submit(go, ordinal) for ordinal in range(first, first + 20)]
            going[7].result()
            worker = changes_worker(service)
            assert worker
            os.kill(worker, signal.SIGKILL)
            assert not all(one.done() for one in going)
            for one in going:
                one.result()
            assert eventually(lambda worker=worker: changes_worker(service, not_=worker) > 0)

    counted = sale.wait_until_counted(
        seconds_max=OPEN_TRANSACTION_SECONDS_MAX,
        sold=fates.count("buy"),
        held=fates.count("leave"),
        available=fates.count("cancel") + fates.count("release"),
    )
    assert eventually(lambda: sale.dashboard()["orders"]["confirmed"] == fates.count("buy"))
    assert counted["holds"]["created"] == 60
    audit = service.command("scripts/audit")
    assert (audit.returncode, audit.stdout) == (0, "All invariants hold.\n"), audit


def changes_worker(service: Service, *, not_: int = 0) -> int:
    """The process number of this service's changes worker, or 0 while there is none."""
    mine = f"TICKETING_MONGODB_URI={service.mongodb_uri}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")[1:4]
            environment = (folder / "environ").read_bytes().split(b"\0")
            if command == [b"-m", b"workers", b"changes"] and mine in environment:
                number = int(folder.name)
                return 0 if number == not_ else number
    return 0


def test_after_all_that_every_question_is_answered_by_its_index(service: Service) -> None:
    sale = service.sale()
    service.fan().buy(sale, 0)
    verified = service.command("scripts/indexes", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
