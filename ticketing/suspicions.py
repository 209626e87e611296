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
class _Fan:
    began: float
    unpaid: int = 0
    hold_ids: set[str] = field(default_factory=set)


@dataclass
class _Address:
    began: float
    fans: set[int] = field(default_factory=set)


class Suspicions:
    """What this process remembers of the last hour; `now` is in seconds of any steady clock."""

    def __init__(self) -> None:
        self._fans: OrderedDict[str, _Fan] = OrderedDict()
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def asks(self, fan_id: str, address: str, now: float) -> None:
        """A fan asks for a hold: counted before it is placed, or many at once would all pass."""
        fan = self._fans.get(fan_id)
        if fan is None or now - fan.began > FORGOTTEN_AFTER_SECONDS:
            fan = self._fans[fan_id] = _Fan(now)
        fan.unpaid += 1
        self._fans.move_to_end(fan_id)
        if len(self._fans) > FANS_REMEMBERED_MAX:
            self._fans.popitem(last=False)
        place = self._addresses.get(address)
        if place is None or now - place.began > FORGOTTEN_AFTER_SECONDS:
            place = self._addresses[address] = _Address(now)
        if len(place.fans) <= FANS_PER_ADDRESS_MAX:
            place.fans.add(hash(fan_id))
        self._addresses.move_to_end(address)
        if len(self._addresses) > ADDRESSES_REMEMBERED_MAX:
            self._addresses.popitem(last=False)

    def got(self, fan_id: str, hold_id: str) -> None:
        """The fan got that hold for what was counted; the same hold once more does not count."""
        fan = self._fans.get(fan_id)
        if fan is None:
            return
        if hold_id in fan.hold_ids:
            fan.unpaid -= 1
        elif len(fan.hold_ids) < UNPAID_HOLDS_MAX:
            fan.hold_ids.add(hold_id)

    def missed(self, fan_id: str) -> None:
        """The fan got no hold for what was counted."""
        fan = self._fans.get(fan_id)
        if fan is not None and fan.unpaid:
            fan.unpaid -= 1

    def paid(self, fan_id: str) -> None:
        """A fan paid for something: what they held before was no mischief."""
        self._fans.pop(fan_id, None)

    def are_of(self, fan_id: str, address: str, now: float) -> bool:
        """Whether the fan, or who else comes from that address, behaves as no fan does."""
        fan, place = self._fans.get(fan_id), self._addresses.get(address)
        return (
            fan is not None
            and fan.unpaid >= UNPAID_HOLDS_MAX
            and now - fan.began <= FORGOTTEN_AFTER_SECONDS
        ) or (
            place is not None
            and len(place.fans) > FANS_PER_ADDRESS_MAX
            and now - place.began <= FORGOTTEN_AFTER_SECONDS
        )
