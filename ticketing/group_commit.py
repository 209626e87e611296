"""What arrives while a write is in flight goes out together as the next.

Knows nothing of what is written: it is given a function from a list of requests to the list of
their outcomes. When idle a request waits for nobody; under load the groups grow by themselves.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from dataclasses import dataclass
from typing import Generic, TypeVar

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")

# How far down the queue a group is looked for, in multiples of its size.
LOOKED_AT_PER_PLACE = 8


class Overloaded(Exception):
    """The queue is full: the caller should try again a little later."""


class GroupCommit(Generic[Request, Outcome]):
    """Collects concurrent requests and hands them to `flush` in groups.

    Up to `in_flight_max` groups are on their way at once; one beside others waits until it is
    worth its round trip. `keys` names what a request touches: one
    that touches what a group in flight touches waits for that group, so that groups in flight
    together never depend on each other. `is_everybodys` tells of an error that no member has
    caused, such as a database that is away: all get it at once.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Request]], Awaitable[Sequence[Outcome]]],
        *,
        keys: Callable[[Request], Iterable[Hashable]],
        group_size_max: int,
        queue_size_max: int,
        in_flight_max: int = 1,
        is_everybodys: Callable[[Exception], bool] = lambda _: False,
    ) -> None:
        self._flush = flush
        self._keys = keys
        self._group_size_max = group_size_max
        self._queue_size_max = queue_size_max
        self._in_flight_max = in_flight_max
        self._is_everybodys = is_everybodys
        self._queue: deque[_Member[Request, Outcome]] = deque()
        self._busy: set[Hashable] = set()
        self._starting = False
        self._on_their_way = 0
        self._flushes: set[asyncio.Task[None]] = set()
        self._cause: Callable[[], object] = lambda: None
        self._observed: Callable[[Sequence[object]], AbstractContextManager[None]] = lambda _: (
            nullcontext()
        )

    @property
    def queue_size(self) -> int:
        """How many wait for their group to go out."""
        return len(self._queue)

    def observe(
        self,
        cause: Callable[[], object],
        observed: Callable[[Sequence[object]], AbstractContextManager[None]],
    ) -> None:
        """Tell somebody of each group: it is flushed inside `observed`, which is given what
        `cause` gave at the submission of each member.
        """
        self._cause = cause
        self._observed = observed

    async def submit(self, request: Request) -> Outcome:
        """The outcome of this request. Raises Overloaded at once when the queue is full.

        A caller that is cancelled while its request waits takes it out of the queue; one that is
        cancelled later gets no answer, but what was accepted is carried out all the same.
        """
        if len(self._queue) >= self._queue_size_max:
            raise Overloaded
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.append(_Member(request, future, frozenset(self._keys(request)), self._cause()))
        if not self._starting:
            # Not at once: what arrives in the same turn of the loop goes out together.
            self._starting = True
            asyncio.get_running_loop().call_soon(self._start)
        return await future

    async def drain(self) -> None:
        """Wait until everything accepted has its outcome."""
        while self._flushes or self._queue:
            self._start()
            if self._flushes:
                await asyncio.wait(self._flushes)

    def _start(self) -> None:
        """Send off what may go now, unless enough groups are on their way."""
        self._starting = False
        while self._queue and len(self._flushes) < self._in_flight_max:
            if self._flushes and len(self._queue) < self._worthwhile():
                return
            group = self._next_group()
            if not group:
                return
            self._on_their_way += len(group)
            # Nobody's request in particular: what it says and times is not one member's.
            task = asyncio.create_task(self._run(group), context=Context())
            self._flushes.add(task)
            task.add_done_callback(self._finished)

    def _worthwhile(self) -> int:
        """How many must be waiting for a group to go out beside those in flight.

        Groups of one or two would fill the places in flight, and none could grow: half as many as
        are on their way already keeps the process and the database busy at the same time.
        """
        return min(self._on_their_way // 2, self._group_size_max)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._flushes.discard(task)
        self._start()

    def _next_group(self) -> list["_Member[Request, Outcome]"]:
        """Take from the queue, oldest first, what touches nothing that is on its way.

        What must wait keeps its place, and what comes later and touches the same waits behind it:
        requests that depend on each other stay in the order in which they came.
        """
        group: list[_Member[Request, Outcome]] = []
        waiting: list[_Member[Request, Outcome]] = []
        passed: set[Hashable] = set()
        looked_at_max = self._group_size_max * LOOKED_AT_PER_PLACE
        while self._queue and len(group) < self._group_size_max:
            if len(group) + len(waiting) >= looked_at_max:
                break
            member = self._queue.popleft()
            if member.future.done():
                continue
            if member.keys.isdisjoint(self._busy) and member.keys.isdisjoint(passed):
                group.append(member)
            else:
                waiting.append(member)
                passed |= member.keys
        self._queue.extendleft(reversed(waiting))
        for member in group:
            self._busy |= member.keys
        return group

    async def _run(self, group: list["_Member[Request, Outcome]"]) -> None:
        try:
            with self._observed([member.cause for member in group]):
                await self._settle(group)
        finally:
            self._on_their_way -= len(group)
            for member in group:
                self._busy -= member.keys

    async def _settle(self, group: list["_Member[Request, Outcome]"]) -> None:
        try:
            outcomes = await self._flush([member.request for member in group])
        except Exception as error:  # noqa: BLE001
            if len(group) == 1 or self._is_everybodys(error):
                for member in group:
                    _give_error(member.future, error)
                return
            # Who caused it can't be told from outside, so each is tried alone: an error is never
            # given to a request that would have done well by itself.
            for member in group:
                if not member.future.done():
                    await self._settle([member])
            return
        for member, outcome in zip(group, outcomes, strict=True):
            if not member.future.done():
                member.future.set_result(outcome)


@dataclass(frozen=True)
class _Member(Generic[Request, Outcome]):
    request: Request
    future: asyncio.Future[Outcome]
    keys: frozenset[Hashable]
    cause: object


def _give_error(future: asyncio.Future[Outcome], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
