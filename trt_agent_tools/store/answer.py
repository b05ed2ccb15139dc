"""Threads beside the event loop, and what they hand to its tasks."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import anyio

from trt_agent_tools.store.errors import JournalError, NoAnswerError

T = TypeVar("T")


def start_thread(target: Callable[[], None], name: str) -> None:
    """Start a thread that the interpreter's exit does not wait for: a disk may hang.

    Raises:
        JournalError: the system gives no thread.
    """
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError as error:
        raise JournalError(f"the journal gets no thread: {error}") from error


class Answer(Generic[T]):
    """Made in the event loop, given once from any thread, waited for in the loop.

    Giving it never blocks, and is harmless when the loop has ended or nobody waits any more.
    """

    def __init__(self) -> None:
        # Of asyncio and not anyio, which knows no call into the loop that returns at once.
        self._loop = asyncio.get_running_loop()
        self._given = anyio.Event()
        self._value: tuple[T] | None = None
        self._error: JournalError | None = None
        self.is_unwanted = False
        """Whether whoever waited was told that there is no answer: the work, if not begun, is not done."""

    def give(self, value: T) -> None:
        """Let `wait` return `value`."""
        self._value = (value,)
        self._wake()

    def fail(self, error: JournalError) -> None:
        """Let `wait` raise `error`."""
        self._error = error
        self._wake()

    async def wait(self, within_s: float) -> T:
        """Return what is given.

        Raises:
            NoAnswerError: nothing is given within `within_s` seconds.
            JournalError: this error was given.
        """
        with anyio.move_on_after(within_s):
            await self._given.wait()
        if self._error is not None:
            raise self._error
        if self._value is None:
            self.is_unwanted = True
            raise NoAnswerError(
                f"the journal has not answered for {within_s:g} s: its disk hangs, or is overloaded"
            )
        return self._value[0]

    def _wake(self) -> None:
        # The loop may be closed: then nobody waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._given.set)
