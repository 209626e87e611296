"""What the scenarios of one run share."""

import sys
import time
from dataclasses import dataclass, field

from scripts.benchmark import stage
from scripts.benchmark.figures import Figures
from scripts.benchmark.raw import RawConfirm, RawGrouped, RawSingle
from scripts.benchmark.report import Report
from scripts.benchmark.sizes import Sizes
from scripts.benchmark.stage import Sale, Stage

RAW_DATABASE = "bench_raw"


@dataclass
class Run:
    """The stage, how much to do, and where the figures go."""

    stage: Stage
    sizes: Sizes
    report: Report
    _raw: dict[str, list[Figures]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # Without the real indexes and validators a limit would be none.
        stage.prepare(stage.in_database(self.stage.settings, RAW_DATABASE))

    def say(self, sentence: str) -> None:
        """Tell a person how far it is."""
        print(f"{time.monotonic() - self._began:6.1f} s  {sentence}", file=sys.stderr, flush=True)

    def sale(self, seat_count: int, section_count: int = 1) -> Sale:
        """A new event on sale at the service."""
        return stage.put_on_sale(self.stage.settings, seat_count, section_count)

    # --- The driver's own limits -----------------------------------------------------------------
    # In a database of their own, so that no worker counts what is not the service's.

    def raw_single(self) -> Figures:
        """Measure one statement a round trip."""
        self.say("raw limit: one compare-and-set a round trip")
        sale = self._raw_sale(self.sizes.raw_single_seats)
        load = RawSingle(event_id=sale.event_id, seat_count=sale.seat_count)
        return self._keep("raw-single", self.stage.load(load, database=RAW_DATABASE).figures)

    def raw_grouped(self) -> Figures:
        """Measure the same statements in groups."""
        self.say("raw limit: 32 of them a bulk write")
        sale = self._raw_sale(self.sizes.raw_grouped_seats)
        load = RawGrouped(event_id=sale.event_id, seat_count=sale.seat_count)
        return self._keep("raw-grouped", self.stage.load(load, database=RAW_DATABASE).figures)

    def raw_confirm(self) -> Figures:
        """Measure the confirmation transaction."""
        self.say("raw limit: 16 orders a confirmation transaction")
        sale = self._raw_sale(self.sizes.raw_confirm_orders)
        load = RawConfirm(event_id=sale.event_id, seat_count=sale.seat_count)
        return self._keep("raw-confirm", self.stage.load(load, database=RAW_DATABASE).figures)

    def _raw_sale(self, seat_count: int) -> Sale:
        settings = stage.in_database(self.stage.settings, RAW_DATABASE)
        return stage.put_on_sale(settings, seat_count)

    def _keep(self, scenario: str, figures: Figures) -> Figures:
        """All rounds of a reference are reported together, whatever scenario they were for."""
        known = self._raw.setdefault(scenario, [])
        known.append(figures)
        self.report.add(scenario, known)
        return figures
