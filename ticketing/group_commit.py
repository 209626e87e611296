"""What arrives while a write is in flight goes out together as the next.

Knows nothing of what is written: it is given a function from a list of requests to the list of
their outcomes. When idle a request waits for nobody; under load the groups grow by themselves.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


class Overloaded(Exception):
    """The queue is full: the caller should try again a little later."""


class GroupCommit(Generic[Request, Outcome]):
    """Collects concurrent requests and hands them to `flush` in groups, one group at a time."""

    def __init__(
        self,
        flush: Callable[[Sequence[Request]], Awaitable[Sequence[Outcome]]],
        *,
        group_size_max: int,
        queue_size_max: int,
    ) -> None:
        self._flush = flush
        self._group_size_max = group_size_max
        self._queue_size_max = queue_size_max
        self._queue: deque[tuple[Request, asyncio.Future[Outcome]]] = deque()
        self._running: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Outcome:
        """The outcome of this request. Raises Overloaded at once when the queue is full.

        A caller that is cancelled while its request waits takes it out of the queue; one that is
        cancelled later gets no answer, but what was accepted is carried out all the same.
        """
        if len(self._queue) >= self._queue_size_max:
            raise Overloaded
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.append((request, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    async def drain(self) -> None:
        """Wait until everything accepted has its outcome."""
        while self._running is not None:
            await asyncio.shield(self._running)

    async def _run(self) -> None:
        try:
            while self._queue:
                group: list[tuple[Request, asyncio.Future[Outcome]]] = []
                while self._queue and len(group) < self._group_size_max:
                    member = self._queue.popleft()
                    if not member[1].done():
                        group.append(member)
                if group:
                    await self._settle(group)
        finally:
            self._running = None

    async def _settle(self, group: list[tuple[Request, asyncio.Future[Outcome]]]) -> None:
        try:
            outcomes = await self._flush([request for request, _ in group])
        except Exception as error:  # noqa: BLE001
            if len(group) == 1:
                _give_error(group[0][1], error)
                return
            # Who caused it can't be told from outside, so each is tried alone: an error is never
            # given to a request that would have done well by itself.
            for member in group:
                await self._settle([member])
            return
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)


def _give_error(future: asyncio.Future[Outcome], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
