"""How often somebody may ask: so much in a window, and then as fast as it fills up again.

In the memory of one process, so that it costs no question to the database: several processes
together let through as many times more. Which requests count where is the edge's business.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil

from ticketing.errors import Refusal


@dataclass(frozen=True)
class Policy:
    """`quota` requests at once, and as many again in each `window_seconds`."""

    name: str
    quota: int
    window_seconds: int


@dataclass(frozen=True)
class Left:
    """What one who asked has left: so many at once, and in how many seconds there is more."""

    policy: Policy
    remaining: int
    reset_seconds: int


class RateLimited(Refusal):
    """Asked too often; `left` says since what policy, and when it may be asked again."""

    slug = "rate-limited"
    title = "Too many requests"

    def __init__(self, left: Left) -> None:
        super().__init__(f"Too many requests. Try again in {left.reset_seconds} s.")
        self.left = left


class Meter:
    """The requests of everybody under one policy, by a key such as an address.

    For each key one instant is kept: when all that was asked will have been made up for (the
    generic cell rate algorithm). At most `keys_max` keys are kept, those that asked last: whoever
    can ask from more addresses than that is not held back by a limit for each address.
    """

    def __init__(self, policy: Policy, keys_max: int) -> None:
        self.policy = policy
        self._keys_max = keys_max
        self._made_up_at: OrderedDict[str, float] = OrderedDict()
        self._interval = policy.window_seconds / policy.quota

    def take(self, key: str, now: float) -> Left:
        """Count one request; `now` is in seconds of any steady clock. Raises RateLimited."""
        made_up_at = max(self._made_up_at.get(key, now), now)
        ahead = made_up_at - now
        if ahead > self.policy.window_seconds - self._interval:
            self._made_up_at.move_to_end(key)
            wait = ahead - (self.policy.window_seconds - self._interval)
            raise RateLimited(Left(self.policy, 0, ceil(wait) or 1))
        self._made_up_at[key] = made_up_at + self._interval
        self._made_up_at.move_to_end(key)
        if len(self._made_up_at) > self._keys_max:
            self._made_up_at.popitem(last=False)
        remaining = int((self.policy.window_seconds - ahead) / self._interval + 1e-9) - 1
        return Left(self.policy, max(remaining, 0), ceil(self._interval))

    def __len__(self) -> int:
        return len(self._made_up_at)
