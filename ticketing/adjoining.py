"""Which seats are best: next to each other, near the front, leaving no single seat behind."""

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain, islice
from random import Random

# A place of the plan: the seat, the row it stands in, and whether it is free.
Place = tuple[str, Hashable, bool]

SPREAD_MAX = 12


def choose(plan: Iterable[Place], quantity: int, *, spread: int, rng: Random) -> list[str]:
    """`quantity` free seats of a plan that has at least as many, adjoining where possible.

    The plan is in plan order, the best first, and is read only as far as needed. Blocks of free
    seats in one row are preferred that leave no single seat alone, then those earlier in the plan.
    With `spread` 0 the best is taken; each step more draws among twice as many of the best, so
    that contenders part ways. Where no row has enough, the seats are taken from the fewest and
    largest blocks.
    """
    candidates_wanted = 1 << min(spread, SPREAD_MAX)
    blocks: list[list[str]] = []
    # By how many single seats a choice leaves alone: none, one or two.
    ranked: tuple[list[list[str]], ...] = ([], [], [])
    for block in _blocks(plan):
        blocks.append(block)
        for start in range(len(block) - quantity + 1):
            ranked[_singles_left(len(block), start, quantity)].append(
                block[start : start + quantity]
            )
            if len(ranked[0]) >= candidates_wanted:
                break
        if len(ranked[0]) >= candidates_wanted:
            break
    candidates = list(islice(chain(*ranked), candidates_wanted))
    if candidates:
        return candidates[rng.randrange(len(candidates))]
    by_size = sorted(blocks, key=len, reverse=True)
    if spread:
        top = by_size[:candidates_wanted]
        rng.shuffle(top)
        by_size[: len(top)] = top
    return list(islice(chain(*by_size), quantity))


def _blocks(plan: Iterable[Place]) -> Iterator[list[str]]:
    """The runs of free seats that stand side by side in one row."""
    run: list[str] = []
    row: Hashable = None
    for seat, seat_row, is_free in plan:
        if run and (seat_row != row or not is_free):
            yield run
            run = []
        if is_free:
            run.append(seat)
            row = seat_row
    if run:
        yield run


def _singles_left(length: int, start: int, quantity: int) -> int:
    """How many single seats a choice would leave alone at its two sides."""
    return (start == 1) + (length - start - quantity == 1)
