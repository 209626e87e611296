"""What was read a moment ago, for questions that come by the thousand a second."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recently(Generic[Key, Value]):
    """Answers that are at most `seconds` old; whoever asks during a read waits for the same one.

    An error goes to those who waited for it and is not kept. At most `keys_max` answers are kept.
    """

    def __init__(
        self, read: Callable[[Key], Awaitable[Value]], *, seconds: float, keys_max: int
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._keys_max = keys_max
        self._reads: OrderedDict[Key, tuple[float, asyncio.Task[Value]]] = OrderedDict()

    async def get(self, key: Key) -> Value:
        """The answer for this key. Raises what reading raises."""
        began, reading = self._reads.get(key, (0.0, None))
        # The age counts from before the read, so that an answer is never older than it says.
        if reading is None or (reading.done() and monotonic() - began >= self._seconds):
            reading = asyncio.ensure_future(self._read(key))
            self._reads[key] = (monotonic(), reading)
            self._reads.move_to_end(key)
            while len(self._reads) > self._keys_max:
                self._reads.popitem(last=False)
        try:
            # Shielded: one who goes away must not cut off the others' read.
            return await asyncio.shield(reading)
        except BaseException:
            if reading.done() and self._reads.get(key, (0.0, None))[1] is reading:
                del self._reads[key]
            raise

    def forget(self, key: Key | None = None) -> None:
        """Read anew from now on, whatever is asked for or this one key."""
        if key is None:
            self._reads.clear()
        else:
            self._reads.pop(key, None)
