"""Who behaves as no fan does: many holds that are never paid, or many accounts from one address.

Known to one process, from what it has seen itself, and bounded: a suspicion costs the fan no seat
but a moment's work, so it may be wrong now and then.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

# A fan who changes their mind places a few holds, a bot that keeps seats from others hundreds.
UNPAID_HOLDS_MAX = 5
# A family or an office shares an address. So does a mobile network, whose fans then work a moment.
FANS_PER_ADDRESS_MAX = 50
FORGOTTEN_AFTER_SECONDS = 3_600.0
FANS_REMEMBERED_MAX = 100_000
ADDRESSES_REMEMBERED_MAX = 20_000


@dataclass
class _Fans:
    began: float
    seen: set[int] = field(default_factory=set)


class Suspicions:
    """What this process remembers of the last hour; `now` is in seconds of any steady clock."""

    def __init__(self) -> None:
        # Per fan: holds since the last paid order, and when the first of them was placed.
        self._unpaid: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._addresses: OrderedDict[str, _Fans] = OrderedDict()

    def held(self, fan_id: str, address: str, now: float) -> None:
        """A fan got a hold."""
        count, began = self._unpaid.get(fan_id, (0, now))
        if now - began > FORGOTTEN_AFTER_SECONDS:
            count, began = 0, now
        self._unpaid[fan_id] = (count + 1, began)
        self._unpaid.move_to_end(fan_id)
        if len(self._unpaid) > FANS_REMEMBERED_MAX:
            self._unpaid.popitem(last=False)
        fans = self._addresses.get(address)
        if fans is None or now - fans.began > FORGOTTEN_AFTER_SECONDS:
            fans = self._addresses[address] = _Fans(now)
        if len(fans.seen) <= FANS_PER_ADDRESS_MAX:
            fans.seen.add(hash(fan_id))
        self._addresses.move_to_end(address)
        if len(self._addresses) > ADDRESSES_REMEMBERED_MAX:
            self._addresses.popitem(last=False)

    def paid(self, fan_id: str) -> None:
        """A fan bought something: what they held before was no mischief."""
        self._unpaid.pop(fan_id, None)

    def are_of(self, fan_id: str, address: str, now: float) -> bool:
        """Whether the fan, or who else comes from that address, behaves as no fan does."""
        count, began = self._unpaid.get(fan_id, (0, now))
        if count >= UNPAID_HOLDS_MAX and now - began <= FORGOTTEN_AFTER_SECONDS:
            return True
        fans = self._addresses.get(address)
        return (
            fans is not None
            and len(fans.seen) > FANS_PER_ADDRESS_MAX
            and now - fans.began <= FORGOTTEN_AFTER_SECONDS
        )
