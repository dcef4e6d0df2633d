"""Limits on the size and time of one request, and on many requests."""

import asyncio
import dataclasses
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import TracebackType

from .errors import Code, ServingError, invalid
from .tensors import Tensors

_OBJECTS_PER_EXAMPLE = 4
# Most requests are answered within this many seconds. Only if a request takes longer, a task starts
# that waits for its client to disconnect.
_LOOK_SECONDS = 0.02
# `Rate` remembers this many names.
_REMEMBERED = 10_000
# A client may send this many seconds' worth of requests in one burst.
_BURST_SECONDS = 2.0
# Sums of times are rounded.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class Limits:
    """Upper limits for every request, checked before memory is used.

    Attributes:
        max_rank: Dimensions of one tensor.
        max_elements: Values in one request.
        max_ids: Ids or bags in one lookup, or examples in one request.
        max_bytes: Bytes of one request after decompression.
    """

    max_rank: int = 8
    max_elements: int = 4_000_000
    max_ids: int = 100_000
    max_bytes: int = 64 << 20

    def check_rank(self, rank: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a tensor is nested too deeply."""
        if rank > self.max_rank:
            raise invalid(
                f"A tensor must have at most {self.max_rank} dimensions. Received: rank={rank}"
            )

    def check_elements(self, body: bytes) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a body holds too many values.

        Counts commas instead of values, because values can only be counted after they are created.
        A body with n commas holds at most n + 1 values.
        """
        if len(body) > self.max_elements and body.count(b",") >= self.max_elements:
            raise _too_many(self.max_elements, "values")

    def check_tensors(self, tensors: Tensors) -> int:
        """Counts the values in tensors.

        Raises:
            ServingError: INVALID_ARGUMENT for too many values or dimensions.
        """
        values = 0
        for array in tensors.values():
            if array.ndim > self.max_rank:
                self.check_rank(array.ndim)
            values += array.size
        if values > self.max_elements:
            self.check_count(values)
        return values

    def check_count(self, count: int, what: str = "values") -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) for too many values.

        `what` is `values`, `ids`, `bags` or `examples`.
        """
        most = self.max_elements if what == "values" else self.max_ids
        if count > most:
            raise _too_many(most, what, count)

    def check_objects(self, body: bytes) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a body holds too many objects.

        Counts opening braces, before any object is created. An example is an object, and so is each
        base64 value in it. So the limit allows a few objects per example.
        """
        if body.count(b"{") > _OBJECTS_PER_EXAMPLE * self.max_ids:
            raise _too_many(self.max_ids, "examples")


def _too_many(most: int, what: str, count: int | None = None) -> ServingError:
    holder = "lookup must name" if what in ("ids", "bags") else "request must hold"
    received = "" if count is None else f" Received: {count} {what}"
    return invalid(f"A {holder} at most {most} {what}: send it in parts.{received}")


class Shares:
    """Limits an amount in use at once, in all and per name, such as a client's or a model's.

    Used from one event loop.
    """

    def __init__(
        self, each: int, of_each: str, in_all: int | None = None, of_all: str = ""
    ) -> None:
        """Creates the limit.

        Args:
            each: Largest amount per name.
            of_each: The error for more: `At most {each} {of_each}.`
            in_all: Largest amount in all; None for no limit.
            of_all: The error for more, as `of_each`.
        """
        self._each, self._of_each, self._in_all, self._of_all = each, of_each, in_all, of_all
        self._used = 0
        self._by_name: dict[str, int] = {}

    def take(self, name: str, count: int = 1) -> None:
        """Takes a part of the amount. `give` returns it.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if so much is not free.
        """
        used = self._by_name.get(name, 0) + count
        if used > self._each:
            raise _exhausted(self._each, self._of_each)
        if self._in_all is not None and self._used + count > self._in_all:
            raise _exhausted(self._in_all, self._of_all)
        self._used += count
        self._by_name[name] = used

    def add(self, name: str, count: int) -> None:
        """Takes a part of the amount although it may not be free.

        The part above the name's own limit does not count toward the limit of all names.
        """
        used = self._by_name.get(name, 0)
        self._used += min(used + count, self._each) - min(used, self._each)
        self._by_name[name] = used + count

    def give(self, name: str, count: int = 1) -> None:
        """Returns a part of the amount."""
        used = self._by_name.pop(name, 0)
        left = used - count
        self._used -= min(used, self._each) - min(left, self._each)
        if left:
            self._by_name[name] = left


class Rate:
    """Limits requests per second for each name. Used from one event loop."""

    def __init__(self, rate: float, whose: str, clock: Callable[[], float]) -> None:
        """Creates the limit.

        Args:
            rate: Largest number of requests per second for each name; 0 for no limit.
            whose: The names' description in the error message, such as `from one client`.
            clock: Returns the time in seconds.
        """
        self._rate = rate
        self._gap = 1 / rate if rate else 0.0
        # The requests of a burst are due at intervals of the gap, and come at most this early.
        self._early = max(1.0, rate * _BURST_SECONDS) * self._gap
        self._whose = whose
        self._clock = clock
        # By name, the time when the next request is due. The name that was unused longest is first.
        self._due: OrderedDict[str, float] = OrderedDict()

    def count(self, name: str) -> None:
        """Counts one request.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if the rate is exceeded.
        """
        if not self._rate:
            return
        now = self._clock()
        due = max(now, self._due.get(name, now)) + self._gap
        wait = due - now - self._early
        is_late = wait > _ROUNDING
        self._due[name] = due - self._gap if is_late else due
        self._due.move_to_end(name)
        if len(self._due) > _REMEMBERED:
            self._due.popitem(last=False)
        if is_late:
            what = f"requests per second are allowed {self._whose}"
            raise _exhausted(self._rate, what, max(1.0, wait))


def _exhausted(most: float, what: str, retry_after: float = 1.0) -> ServingError:
    text = f"At most {most:.15g} {what}. Try again later."
    return ServingError(Code.RESOURCE_EXHAUSTED, text, retry_after=retry_after)


class ClientGoneError(Exception):
    """The client closed the connection before the answer."""


class Supervisor:
    """Context manager that cancels the task inside it at a deadline, and raises the reason instead.

    It takes less time than `asyncio.wait_for`, which starts a task per request before Python 3.12.
    """

    _reason: Exception | None = None
    _watcher: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _next_look = math.inf

    def __enter__(self) -> "Supervisor":
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        return self

    def bound(
        self,
        seconds: float,
        late: Callable[[], Exception],
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Limits the time of the rest of the block. Replaces an earlier limit.

        A block that exceeds the limit raises the exception that `late` creates. `gone` returns when
        the client disconnects; the block then raises `ClientGoneError`. `gone` is None if the
        transport itself cancels the task of a client that disconnected.
        """
        now = self._loop.time()
        self._due, self._late, self._gone = now + seconds, late, gone
        at = min(self._due, now + _LOOK_SECONDS)
        # A limit that replaces another one mostly leaves its timer as it is.
        if at < self._next_look:
            self._look_at(at)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if kind is asyncio.CancelledError and self._reason is not None:
            if hasattr(self._task, "uncancel"):  # since Python 3.11
                self._task.uncancel()
            raise self._reason from None

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_look, self._timer = at, self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._next_look = math.inf
        if self._loop.time() >= self._due:
            self._cancel(self._late())
            return
        if self._gone is not None and self._watcher is None:
            self._watcher = self._loop.create_task(self._wait_gone(self._gone))
        self._look_at(self._due)

    async def _wait_gone(self, gone: Callable[[], Awaitable[None]]) -> None:
        await gone()
        self._cancel(ClientGoneError())

    def _cancel(self, reason: Exception) -> None:
        if self._reason is None:
            self._reason = reason
            self._task.cancel()
