"""The one thread that reads, on a connection that cannot write: a list waits for no commit."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from trt_agent_tools.store.answer import Answer, start_thread
from trt_agent_tools.store.errors import JournalError, unusable
from trt_agent_tools.store.schema import connect_for_reading

T = TypeVar("T")
Query = Callable[[sqlite3.Connection], T]


@dataclass(frozen=True, slots=True)
class _Asked:
    query: Query[Any]  # of the answer's type, as `submit` has it
    answer: Answer[Any]


class Reader:
    """Owns a connection that reads. Made and used by `Journal`; there has to be a database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self.closed: Answer[None] = Answer()

    def start(self) -> None:
        """Start the thread.

        Raises:
            JournalError: the system gives none.
        """
        start_thread(self._run, "journal reader")

    def submit(self, query: Query[T]) -> Answer[T]:
        """Answer what `query` returns."""
        answer: Answer[T] = Answer()
        self._asked.put(_Asked(query, answer))
        return answer

    def stop(self) -> None:
        """Answer what is asked for already, and end."""
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            if not asked.answer.is_unwanted:
                self._answer(asked)
        self._disconnect()
        self.closed.give(None)

    def _answer(self, asked: _Asked) -> None:
        try:
            if self._connection is None:
                self._connection = connect_for_reading(self._path)
            found = asked.query(self._connection)
        except JournalError as error:
            asked.answer.fail(error)
        except Exception as error:  # noqa: BLE001  (whatever it is: the caller is told, the thread lives on)
            self._disconnect()
            asked.answer.fail(unusable(self._path, "read", error))
        else:
            asked.answer.give(found)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
