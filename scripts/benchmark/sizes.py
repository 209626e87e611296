"""How much of everything: a full run, a quick one of the same shape, and a smoke of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The counts of one run. Each round of a comparison measures the references again."""

    rounds: int = 3
    raw_single_seats: int = 8_000
    raw_grouped_seats: int = 20_000
    raw_confirm_orders: int = 3_200
    hold_seats: int = 20_000
    purchases: int = 5_000
    contending_fans: int = 5_000
    contended_seats: int = 500
    seat_map_seats: int = 80_000
    seat_map_phase_seconds: float = 2.0
    dashboard_seats: int = 20_000
    grown_events: int = 100
    grown_event_seats: int = 20_000
    grown_holds: int = 8_000
    large_events: int = 10
    large_event_seats: int = 80_000
    connections: int = 10_000
    dashboards: int = 500
    connected_holds: int = 2_000
    connected_seconds: float = 20.0
    sell_out_seats: int = 80_000
    sell_out_sections: int = 20
    sell_out_seats_per_fan: int = 4


FULL = Sizes()
QUICK = Sizes(
    rounds=1,
    raw_single_seats=4_000,
    raw_grouped_seats=12_000,
    raw_confirm_orders=1_600,
    hold_seats=8_000,
    purchases=1_500,
    seat_map_phase_seconds=0.5,
    dashboard_seats=6_000,
    grown_events=10,
    grown_holds=5_000,
    large_events=2,
    connections=2_000,
    dashboards=100,
    connected_holds=500,
    connected_seconds=3.0,
    sell_out_seats=6_000,
    sell_out_sections=5,
)
SMOKE = Sizes(
    rounds=1,
    raw_single_seats=200,
    raw_grouped_seats=320,
    raw_confirm_orders=64,
    hold_seats=320,
    purchases=64,
    contending_fans=200,
    contended_seats=20,
    seat_map_seats=2_000,
    seat_map_phase_seconds=0.2,
    dashboard_seats=320,
    grown_events=3,
    grown_event_seats=320,
    grown_holds=320,
    large_events=2,
    large_event_seats=2_000,
    connections=100,
    dashboards=10,
    connected_holds=40,
    connected_seconds=0.5,
    sell_out_seats=160,
    sell_out_sections=4,
)
