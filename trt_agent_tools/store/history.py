"""What past builds took: how it is stored, asked for and pruned.

A row that cannot be (bad JSON, no number, a negative time) is passed over and logged once.
"""

import json
import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.progress.past import Past, Setting, Shape, Span

KEEP_ROWS = 10_000
"""So many past builds are kept, the newest."""

KEEP_OF_ONE = 20
"""So many of one model with the same options in one setting, the newest."""

OF_ONE_AMONG_OTHERS = 3
"""So many of one model with the same options are asked for among others: there is room for many models."""

_log = logging.getLogger(__name__)

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Seconds = Annotated[float, Field(ge=0, le=MAX_S, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class SidecarStamp:
    """A model's file of external data; `path` is relative to the model's folder."""

    path: str
    bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Learned:
    """What a build that succeeded tells of later ones.

    `stamp` says how the model's file lay on the disk: one that was changed or replaced has another. None
    where the model's files cannot be known again by it and by `sidecars`.
    """

    past: Past
    stamp: str | None = None
    sidecars: tuple[SidecarStamp, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model whose file has a known stamp: its digest holds if its `sidecars` are still those."""

    model: str
    shape: Shape | None
    sidecars: tuple[SidecarStamp, ...]


class _StoredShape(BaseModel):
    nodes: _Count
    weight_bytes: _Count
    operators: dict[str, _Count]
    profile_elements: _Count = 0
    optimization_level: Annotated[int, Field(ge=0, le=1000)] | None = None


_SPANS: TypeAdapter[list[tuple[str, _Seconds, _Seconds]]] = TypeAdapter(
    list[tuple[str, _Seconds, _Seconds]]
)
_TOTAL: TypeAdapter[float] = TypeAdapter(_Seconds)
_SIDECARS: TypeAdapter[list[tuple[str, int, int]]] = TypeAdapter(list[tuple[str, int, int]])

# Text is asked for as bytes, so that some which is none fails its own row and no other.
_PAST = (
    "SELECT h.number, CAST(h.model AS BLOB), CAST(h.options AS BLOB), CAST(h.shape AS BLOB), "
    "h.total_s, CAST(h.spans AS BLOB) FROM {} ORDER BY h.number DESC LIMIT :limit"
)
_SAME = _PAST.format(
    "history AS h WHERE backend = :backend AND version = :version AND device = :device "
    "AND model = :model AND options = :options"
)
# The newest models, by the index alone; then a few rows of each.
_OTHERS = _PAST.format(
    "(SELECT model, options, max(number) AS newest FROM history "
    "WHERE backend = :backend AND version = :version AND device = :device "
    "GROUP BY model, options ORDER BY newest DESC LIMIT :limit) AS m CROSS JOIN history AS h "
    "ON h.number IN (SELECT number FROM history "
    "WHERE backend = :backend AND version = :version AND device = :device "
    "AND model = m.model AND options = m.options ORDER BY number DESC LIMIT :each)"
)


def add(connection: sqlite3.Connection, build_id: str, wall: float, learned: Learned) -> None:
    """Store what a build tells; a second time changes nothing."""
    past, shape = learned.past, learned.past.shape
    connection.execute(
        "INSERT INTO history (build_id, wall, backend, version, device, model, options, stamp, "
        "sidecars, shape, total_s, spans) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (build_id) DO NOTHING",
        (
            build_id,
            wall,
            past.setting.backend,
            past.setting.version,
            past.setting.device,
            past.model,
            past.options,
            learned.stamp,
            _json([(each.path, each.bytes, each.mtime_ns) for each in learned.sidecars]),
            None if shape is None else _json(asdict(shape)),
            past.total_s,
            _json([(each.path, each.began_s, each.ended_s) for each in past.spans]),
        ),
    )


def same(
    connection: sqlite3.Connection, setting: Setting, model: str, options: str
) -> tuple[Past, ...]:
    """Return the past builds of a model with these options, newest first, `KEEP_OF_ONE` at most."""
    asked = {"model": model, "options": options, "limit": KEEP_OF_ONE}
    rows = connection.execute(_SAME, {**asdict(setting), **asked})
    return tuple(_pasts(connection, setting, rows))


def others(connection: sqlite3.Connection, setting: Setting, limit: int) -> tuple[Past, ...]:
    """Return up to `limit` past builds of any model, newest first, a few of each."""
    rows = connection.execute(
        _OTHERS, {**asdict(setting), "each": OF_ONE_AMONG_OTHERS, "limit": max(0, limit)}
    )
    return tuple(_pasts(connection, setting, rows))


def by_stamp(connection: sqlite3.Connection, stamp: str) -> KnownModel | None:
    """Return the model whose file had this stamp when it was last built."""
    rows = connection.execute(
        "SELECT number, CAST(model AS BLOB), CAST(shape AS BLOB), CAST(sidecars AS BLOB) FROM history "
        "WHERE stamp = ? ORDER BY number DESC LIMIT ?",
        (stamp, KEEP_OF_ONE),
    )
    for number, model, shape, sidecars in rows:
        try:
            found = tuple(SidecarStamp(*each) for each in _SIDECARS.validate_json(sidecars))
            return KnownModel(model.decode(), _shape(shape), found)
        except (ValidationError, UnicodeDecodeError) as error:
            _report(_file(connection), number, str(error))
    return None


def latest_version(connection: sqlite3.Connection, backend: str, device: str) -> str | None:
    """Return the version of the library that last built with this backend on this kind of device."""
    found = connection.execute(
        "SELECT CAST(version AS BLOB) FROM history WHERE backend = ? AND device = ? "
        "ORDER BY number DESC LIMIT 1",
        (backend, device),
    ).fetchone()
    return None if found is None else bytes(found[0]).decode("utf-8", "replace")


def prune(
    connection: sqlite3.Connection, keep_rows: int = KEEP_ROWS, keep_of_one: int = KEEP_OF_ONE
) -> int:
    """Remove what is too much, the oldest first, and return how many rows that were."""
    done = connection.execute(
        "DELETE FROM history WHERE number IN (SELECT number FROM (SELECT number, row_number() OVER "
        "(PARTITION BY backend, version, device, model, options ORDER BY number DESC) AS place "
        "FROM history) WHERE place > ?)",
        (keep_of_one,),
    )
    rest = connection.execute(
        "DELETE FROM history WHERE number <= "
        "(SELECT number FROM history ORDER BY number DESC LIMIT 1 OFFSET ?)",
        (keep_rows,),
    )
    return done.rowcount + rest.rowcount


def _pasts(
    connection: sqlite3.Connection, setting: Setting, rows: sqlite3.Cursor
) -> Iterator[Past]:
    for number, model, options, shape, total_s, spans in rows:
        try:
            yield Past(
                setting,
                model.decode(),
                options.decode(),
                _shape(shape),
                _TOTAL.validate_python(total_s),
                tuple(Span(*each) for each in _SPANS.validate_json(spans)),
            )
        except (ValidationError, UnicodeDecodeError) as error:
            _report(_file(connection), number, str(error))


def _shape(stored: bytes | None) -> Shape | None:
    if stored is None:
        return None
    told = _StoredShape.model_validate_json(stored)
    return Shape(
        told.nodes,
        told.weight_bytes,
        told.operators,
        told.profile_elements,
        told.optimization_level,
    )


@lru_cache(maxsize=1000)
def _report(file: str, number: int, why: str) -> None:
    """Log that a row is passed over: each once."""
    _log.warning("history row %d of %s is passed over: %s", number, file, one_line(why, 200))


def _file(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA database_list").fetchone()[2])


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
