"""A hold is all or nothing, one fan's, for a time."""

from datetime import timedelta

import pytest
from pymongo.errors import AutoReconnect

from tests.conftest import NOW, Sale, asked_of_the_server, put_on_sale
from ticketing import checkout, events, holds, seats
from ticketing.errors import IdempotencyKeyReused, Invalid, NotFound, Refusal
from ticketing.holds import Hold, HoldExpired, HoldRequest, SeatsUnavailable
from ticketing.mongo import Database

LATER = NOW + timedelta(seconds=601)


async def place(database: Database, *requests: HoldRequest, now=NOW) -> list[Hold | Refusal]:
    return await holds.place(database, requests, hold_seconds=600, now=now)


async def place_one(database: Database, request: HoldRequest, now=NOW) -> Hold:
    (outcome,) = await place(database, request, now=now)
    if isinstance(outcome, Refusal):
        raise outcome
    return outcome


def request(sale: Sale, fan: str, *ordinals: int, **more) -> HoldRequest:
    return HoldRequest(sale.event_id, fan, sale.seats(*ordinals), **more)


async def states(database: Database, sale: Sale) -> str:
    found = await seats.read(database, sale.event)
    return "".join(seats.STATE_LETTERS[seat["status"]] for seat in found)


async def test_a_hold_takes_all_its_seats_and_says_until_when(either: Database) -> None:
    sale = await put_on_sale(either)
    hold = await place_one(either, request(sale, "fan_a", 3, 4))
    assert [seat["_id"] for seat in hold.seats] == list(sale.seats(3, 4))
    assert hold.expires_at == NOW + timedelta(seconds=600)
    assert (await states(either, sale)).startswith("aaahha")


async def test_a_hold_that_misses_one_seat_takes_none(either: Database) -> None:
    sale = await put_on_sale(either)
    await place_one(either, request(sale, "fan_a", 4))
    with pytest.raises(holds.SeatsUnavailable) as refused:
        await place_one(either, request(sale, "fan_b", 3, 4, 5))
    assert refused.value.unavailable == [sale.seat(4)]
    assert (await states(either, sale)).startswith("aaaahaa")


async def test_of_two_in_one_group_for_one_seat_the_first_gets_it(database: Database) -> None:
    sale = await put_on_sale(database)
    first, second, third = await place(
        database,
        request(sale, "fan_a", 1, 2),
        request(sale, "fan_b", 2, 3),
        request(sale, "fan_c", 3),
    )
    assert isinstance(first, Hold)
    assert isinstance(second, holds.SeatsUnavailable)
    assert sale.seat(2) in second.unavailable
    assert isinstance(third, Hold)


async def test_a_group_member_is_not_refused_for_a_neighbour_that_is_refused(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    await place_one(database, request(sale, "fan_z", 1))
    first, second = await place(
        database, request(sale, "fan_a", 1, 2), request(sale, "fan_b", 2, 3)
    )
    assert isinstance(first, holds.SeatsUnavailable)
    assert isinstance(second, Hold)


async def test_the_same_key_and_body_give_the_same_hold(either: Database) -> None:
    sale = await put_on_sale(either)
    asked = request(sale, "fan_a", 1, 2, key="k", body=b"x")
    first = await place_one(either, asked)
    again = await place_one(either, asked, now=NOW + timedelta(seconds=5))
    assert (again.hold_id, again.expires_at) == (first.hold_id, first.expires_at)
    assert (await states(either, sale)).count("h") == 2


async def test_the_same_request_twice_in_one_group_is_one_hold(database: Database) -> None:
    sale = await put_on_sale(database)
    asked = HoldRequest(sale.event_id, "fan_a", quantity=3, key="k")
    first, second = await place(database, asked, asked)
    assert isinstance(first, Hold)
    assert isinstance(second, Hold)
    assert first.hold_id == second.hold_id
    assert (await states(database, sale)).count("h") == 3


async def test_the_same_key_with_another_body_is_refused(either: Database) -> None:
    sale = await put_on_sale(either)
    await place_one(either, request(sale, "fan_a", 1, key="k", body=b"x"))
    with pytest.raises(IdempotencyKeyReused):
        await place_one(either, request(sale, "fan_a", 2, key="k", body=b"y"))
    await place_one(either, request(sale, "fan_b", 2, key="k", body=b"y"))


async def test_the_limit_counts_all_holds_and_orders_of_the_fan(database: Database) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=4)
    hold = await place_one(database, request(sale, "fan_a", 0, 1))
    await checkout.place_orders(database, [checkout.OrderRequest("fan_a", hold.hold_id)], now=NOW)
    await place_one(database, request(sale, "fan_a", 2))
    with pytest.raises(holds.LimitExceeded) as refused:
        await place_one(database, request(sale, "fan_a", 3, 4))
    assert refused.value.members() == {"limit": 4, "have": 3}
    await place_one(database, request(sale, "fan_a", 3))


async def test_a_lapsed_hold_does_not_count_against_the_limit(database: Database) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=2)
    await place_one(database, request(sale, "fan_a", 0, 1))
    await place_one(database, request(sale, "fan_a", 2, 3), now=LATER)


async def test_an_overdue_hold_yields_to_the_next_buyer_without_any_sweep(either: Database) -> None:
    sale = await put_on_sale(either)
    first = await place_one(either, request(sale, "fan_a", 1, 2))
    second = await place_one(either, request(sale, "fan_b", 2), now=LATER)
    assert second.seats[0]["_id"] == sale.seat(2)
    with pytest.raises(HoldExpired):
        await holds.find(either, first.hold_id, "fan_a", LATER)
    # The late release of the first fan touches nothing of the second's.
    await checkout.release_hold(either, first.hold_id, "fan_a", now=LATER)
    assert (await holds.find(either, second.hold_id, "fan_b", LATER)).seats == second.seats


async def test_a_released_hold_is_free_at_once_and_may_be_released_again(either: Database) -> None:
    sale = await put_on_sale(either)
    hold = await place_one(either, request(sale, "fan_a", 1))
    for _ in range(2):
        await checkout.release_hold(either, hold.hold_id, "fan_a", now=NOW)
    with pytest.raises(HoldExpired):
        await holds.find(either, hold.hold_id, "fan_a", NOW)
    await place_one(either, request(sale, "fan_b", 1))


async def test_another_fans_hold_does_not_exist(database: Database) -> None:
    sale = await put_on_sale(database)
    hold = await place_one(database, request(sale, "fan_a", 1))
    for hold_id in (hold.hold_id, "hold_", "", "hold_x.y", "evt_1"):
        with pytest.raises(NotFound):
            await holds.find(database, hold_id, "fan_b", NOW)
        with pytest.raises(NotFound):
            await holds.release(database, hold_id, "fan_b")
    assert (await holds.find(database, hold.hold_id, "fan_a", NOW)).seats == hold.seats


async def test_seats_of_another_event_and_unknown_sections_are_named(database: Database) -> None:
    sale, other = await put_on_sale(database), await put_on_sale(database)
    names = (sale.seat(1), other.seat(1), sale.seat(40), f"{sale.event_id}:1", "x", "")
    with pytest.raises(Invalid) as refused:
        await place_one(database, HoldRequest(sale.event_id, "fan_a", names))
    assert [path for path, _ in refused.value.errors] == [f"seatIds[{n}]" for n in range(1, 6)]
    with pytest.raises(Invalid):
        await place_one(database, HoldRequest(sale.event_id, "f", quantity=1, section="B"))


async def test_nothing_is_held_outside_the_sale(database: Database) -> None:
    sale = await put_on_sale(database)
    for now in (NOW - timedelta(days=2), NOW + timedelta(days=29)):
        with pytest.raises(events.SaleNotOpen):
            await place_one(database, request(sale, "fan_a", 1), now=now)
    await events.cancel(database, sale.event_id, NOW)
    with pytest.raises(events.SaleNotOpen):
        await place_one(database, request(sale, "fan_a", 1))
    with pytest.raises(NotFound):
        await place_one(database, HoldRequest("evt_none", "fan_a", ("evt_none:00001",)))


async def test_the_best_seats_adjoin_and_the_next_fan_gets_others(either: Database) -> None:
    sale = await put_on_sale(either)
    asked = [HoldRequest(sale.event_id, f"fan_{n}", quantity=4, section="A") for n in range(5)]
    outcomes = await place(either, *asked)
    for hold in outcomes:
        assert isinstance(hold, Hold)
    rows = [sorted({seat["row"] for seat in hold.seats}) for hold in outcomes]
    assert sum(len(row) == 1 for row in rows) == 4  # Two rows of ten hold four blocks of four.
    with pytest.raises(holds.NotEnoughSeats) as refused:
        await place_one(
            either,
            HoldRequest(sale.event_id, "fan_z", quantity=1, section="A"),
        )
    assert refused.value.available == 0


async def test_general_admission_sells_to_the_last_place_and_no_further(either: Database) -> None:
    sale = await put_on_sale(either)
    outcomes = await place(
        either,
        *(HoldRequest(sale.event_id, f"f{n}", quantity=3, section="Floor") for n in range(6)),
    )
    assert all(isinstance(outcome, Hold) for outcome in outcomes)
    with pytest.raises(holds.NotEnoughSeats) as refused:
        await place_one(either, HoldRequest(sale.event_id, "fan", quantity=3, section="Floor"))
    assert refused.value.available == 2
    await place_one(either, HoldRequest(sale.event_id, "fan", quantity=2, section="Floor"))
    assert (await states(either, sale))[20:] == "h" * 20


async def test_the_sweep_frees_overdue_seats_and_no_others(either: Database) -> None:
    sale = await put_on_sale(either)
    await place_one(either, request(sale, "fan_a", 1, 2))
    await place_one(either, request(sale, "fan_b", 3), now=NOW + timedelta(seconds=60))
    assert await seats.lapse_overdue(either, LATER) == 2
    assert (await states(either, sale)).startswith("aaaha")


@pytest.mark.parametrize("form", [{"seats": (1, 2)}, {"quantity": 3}])
async def test_a_key_tried_again_after_its_hold_is_over_holds_anew_and_whole(
    database: Database, form: dict
) -> None:
    sale = await put_on_sale(database)
    asked = HoldRequest(
        sale.event_id,
        "fan_a",
        sale.seats(*form.get("seats", ())),
        quantity=form.get("quantity", 0),
        key="k",
    )
    await place_one(database, asked)
    again = await place_one(database, asked, now=LATER)
    assert again.expires_at == LATER + timedelta(seconds=600)
    assert len(again.seats) == asked.size
    assert (await holds.find(database, again.hold_id, "fan_a", LATER)).seats == again.seats


async def test_one_key_with_two_bodies_in_one_group_makes_one_hold(database: Database) -> None:
    sale = await put_on_sale(database)
    outcomes = await place(
        database, *(request(sale, "fan_a", n, key="k", body=b"%d" % n) for n in range(3))
    )
    assert isinstance(outcomes[0], Hold)
    assert [type(outcome) for outcome in outcomes[1:]] == [IdempotencyKeyReused] * 2
    assert (await states(database, sale)).count("h") == 1


async def test_a_request_cut_off_half_way_and_tried_again_holds_what_it_asked_for(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = await put_on_sale(database)
    asked = HoldRequest(sale.event_id, "fan_a", quantity=3, section="Floor")
    take = seats.take

    async def cut_off(database: Database, claims) -> int:
        await take(database, claims[:2])
        raise AutoReconnect("the connection broke")

    with monkeypatch.context() as broken:
        broken.setattr(seats, "take", cut_off)
        with pytest.raises(AutoReconnect):
            await place(database, asked)
    hold = await place_one(database, asked)
    assert len(hold.seats) == 3
    assert (await states(database, sale)).count("h") == 3


async def test_a_seat_that_changed_hands_after_it_was_read_as_overdue_is_not_freed(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    await place_one(database, request(sale, "fan_a", 1), now=LATER)
    # Somebody read the seat as overdue before, and writes only now.
    assert await seats.lapse(database, sale.seats(1), LATER) == 0
    assert (await states(database, sale)).startswith("ah")


async def test_a_repeated_request_gets_its_hold_also_after_the_sale_has_ended(
    database: Database,
) -> None:
    sale = await put_on_sale(database, sale_ends_at=NOW + timedelta(seconds=60))
    asked = request(sale, "fan_a", 1, key="k")
    first = await place_one(database, asked)
    ended = NOW + timedelta(seconds=90)
    assert await place_one(database, asked, now=ended) == first
    with pytest.raises(events.SaleNotOpen):
        await place_one(database, request(sale, "fan_a", 2, key="other"), now=ended)


async def test_nobody_is_refused_for_a_request_of_the_group_that_is_refused_itself(
    database: Database,
) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=2)
    await place_one(database, request(sale, "fan_z", 0))
    outcomes = await place(database, request(sale, "fan_a", 0, 1), request(sale, "fan_a", 2, 3))
    assert isinstance(outcomes[0], holds.SeatsUnavailable)
    assert isinstance(outcomes[1], Hold)


async def test_a_key_used_for_other_seats_is_found_out_also_when_its_hold_was_not_the_first(
    database: Database,
) -> None:
    sale = await put_on_sale(database)
    first = await place_one(database, request(sale, "fan_a", 0))
    await place_one(database, request(sale, "fan_a", 1, key="k", body=b"1"))
    # Now the fan's first place at the event is free, and the second is the keyed hold's.
    await holds.release(database, first.hold_id, "fan_a")
    with pytest.raises(IdempotencyKeyReused):
        await place_one(database, request(sale, "fan_a", 2, key="k", body=b"2"))
    assert (await states(database, sale)).startswith("ahaa")


async def test_a_fan_holds_one_after_the_other_up_to_the_limit_and_again_what_was_let_go(
    either: Database,
) -> None:
    sale = await put_on_sale(either, max_seats_per_fan=3)
    kept = [await place_one(either, request(sale, "fan_a", ordinal)) for ordinal in range(3)]
    with pytest.raises(holds.LimitExceeded):
        await place_one(either, request(sale, "fan_a", 3))
    await holds.release(either, kept[1].hold_id, "fan_a")
    await place_one(either, request(sale, "fan_a", 3))
    assert (await states(either, sale)).startswith("hahha")


async def test_what_a_fan_let_lapse_does_not_keep_them_from_as_many_seats_again(
    database: Database,
) -> None:
    sale = await put_on_sale(database, max_seats_per_fan=4)
    await place_one(database, request(sale, "fan_a", 0, 1, 2, 3))
    # No sweep has freed them: they are still held, and by the same fan.
    again = await place_one(database, request(sale, "fan_a", 3, 4, 5, 6), now=LATER)
    assert [seat["_id"] for seat in again.seats] == list(sale.seats(3, 4, 5, 6))
    assert (await states(database, sale)).startswith("aaahhhha")


async def test_a_hold_of_a_fan_with_none_is_one_write_and_no_read(database: Database) -> None:
    sale = await put_on_sale(database)
    plans = seats.Plans(database)
    recent = events.Recent(database)
    await plans.get(sale.event_id)
    await recent.slim([sale.event_id])
    wishes = [request(sale, f"fan_{n}", 2 * n, 2 * n + 1) for n in range(5)]
    async with asked_of_the_server(database, "seats") as asked:
        outcomes = await holds.place(
            database, wishes, hold_seconds=600, now=NOW, plans=plans, recent=recent
        )
    assert [entry["op"] for entry in asked] == ["update"] * 10
    # The answers say what the seats are, though nobody read them.
    for outcome in outcomes:
        assert isinstance(outcome, Hold)
        assert outcome.seats == await holds.seats_of(database, [outcome.hold_id])


async def test_a_plan_says_of_each_seat_what_was_laid_out(database: Database) -> None:
    rows = [events.Row("1", count=3), events.Row("2", seats=["7", "9", "x"])]
    sale = await put_on_sale(
        database,
        sections=[
            events.Section("A", "Front", rows=rows),
            events.Section("Floor", "Rear", capacity=3),
            events.Section("B", "Rear", rows=rows),
        ],
    )
    plan = await seats.Plans(database).get(sale.event_id)
    state = {"status": "available", "from": None, "cause": None}
    assert [plan.seat(n) | state for n in range(15)] == await seats.read(database, sale.event)


async def test_what_a_try_nobody_answered_has_left_goes_when_the_same_request_is_refused(
    either: Database,
) -> None:
    sale = await put_on_sale(either)
    wish = HoldRequest(sale.event_id, "fan_a", sale.seats(1, 2, 3), key="k", body=b"b")
    (first,) = await holds.place(either, [wish], hold_seconds=600, now=NOW)
    assert isinstance(first, Hold)
    # As if only two of the seats had been written when the database went away, and another fan
    # was faster at the third.
    lost = {"status": "available", "from": "held", "cause": "yielded"}
    gone = dict.fromkeys(("holdId", "heldUntil", "holdLead", "fanSlot"), "")
    await either.seats.update_one({"_id": sale.seat(3)}, {"$set": lost, "$unset": gone})
    other = HoldRequest(sale.event_id, "fan_b", sale.seats(3))
    (taken,) = await holds.place(either, [other], hold_seconds=600, now=NOW)
    assert isinstance(taken, Hold)
    later = NOW + timedelta(seconds=5)
    (refused,) = await holds.place(either, [wish], hold_seconds=600, now=later)
    assert isinstance(refused, SeatsUnavailable)
    assert await holds.seats_of(either, [first.hold_id]) == []
    assert await either.seats.count_documents({"status": "held"}) == 1
