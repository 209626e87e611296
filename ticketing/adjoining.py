"""Which seats are best: next to each other, near the front, leaving no single seat behind."""

from collections.abc import Hashable, Iterator, Sequence
from random import Random
from types import ModuleType

# A place of the plan: the seat, the row it stands in, and whether it is free.
Place = tuple[str, Hashable, bool]


def choose(
    plan: Sequence[Place], quantity: int, *, spread: int, rng: Random | ModuleType
) -> list[str]:
    """`quantity` free seats of a plan that has at least as many, adjoining where possible.

    The plan is in plan order, the best first. Blocks of free seats in one row are preferred that
    leave no single seat alone, then those earlier in the plan. With `spread` 0 the best is taken;
    each step more draws among twice as many of the best, so that contenders part ways. Where no
    row has enough, the seats are taken from the fewest and largest blocks.
    """
    blocks = list(_blocks(plan))
    candidates = [
        (_leaves_single(len(block), start, quantity), index, start)
        for index, block in enumerate(blocks)
        for start in range(len(block) - quantity + 1)
    ]
    if candidates:
        candidates.sort()
        best = candidates[: 1 << min(spread, 20)] if spread else candidates[:1]
        _, index, start = best[rng.randrange(len(best))]
        return list(blocks[index][start : start + quantity])
    by_size = sorted(blocks, key=lambda block: -len(block))
    if spread:
        top = by_size[: 1 << min(spread, 20)]
        rng.shuffle(top)
        by_size[: len(top)] = top
    return [seat for block in by_size for seat in block][:quantity]


def _blocks(plan: Sequence[Place]) -> Iterator[list[str]]:
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


def _leaves_single(length: int, start: int, quantity: int) -> int:
    """How many single seats a choice would leave alone at its two sides."""
    after = length - start - quantity
    return (start == 1) + (after == 1)
