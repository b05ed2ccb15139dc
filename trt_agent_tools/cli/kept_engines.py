"""What `cache` prints of the engines that are kept for reuse, and clears."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from pydantic import BaseModel

from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.size_text import format_size
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.config import EngineCacheConfig
from trt_agent_tools.supervisor.reuse.cache import EngineCache, Entry, last_used


class KeptEngine(BaseModel):
    """One kept engine: the build that made it, from what, and when it was last used (UTC, ISO 8601)."""

    build_id: str
    backend: str
    device: str
    model: str
    bytes: int
    last_used: str


class KeptEngines(BaseModel):
    """The whole cache; sizes are bytes."""

    folder: str
    bytes: int
    limit_bytes: int
    engines: list[KeptEngine]


def show_cache(config: EngineCacheConfig, *, as_json: bool) -> ExitCode:
    """Print a line for each kept engine and one for all, or one JSON object.

    Raises:
        Refusal: the folder cannot be read.
    """
    with _told(config):
        entries = EngineCache(config.folder, config.limit_bytes).entries()
    engines = [_described(entry) for entry in entries]
    size = sum(engine.bytes for engine in engines)
    if as_json:
        told = KeptEngines(
            folder=str(config.folder), bytes=size, limit_bytes=config.limit_bytes, engines=engines
        )
        print(told.model_dump_json(indent=1))
        return ExitCode.OK
    for engine in engines:
        name = one_line(Path(engine.model).name)
        print(
            f"{engine.build_id}  {engine.last_used}  {engine.backend}  {engine.device}  "
            f"{format_size(engine.bytes)}  {name}"
        )
    print(
        f"{len(engines)} engines, {format_size(size)} of {format_size(config.limit_bytes)}, "
        f"in {config.folder}",
        file=sys.stderr,
    )
    return ExitCode.OK


def clear_cache(config: EngineCacheConfig) -> ExitCode:
    """Remove every kept engine and print how many they were.

    Raises:
        Refusal: one cannot be removed.
    """
    with _told(config):
        number, size = EngineCache(config.folder, config.limit_bytes).clear()
    print(f"{number} engines, {format_size(size)}, are kept no more")
    return ExitCode.OK


def _described(entry: Entry) -> KeptEngine:
    made = entry.manifest
    used = datetime.fromtimestamp(last_used(entry), timezone.utc)
    return KeptEngine(
        build_id=made.build_id,
        backend=made.backend,
        device=made.device,
        model=made.model.path,
        bytes=made.engine.bytes,
        last_used=used.isoformat(timespec="seconds"),
    )


@contextmanager
def _told(config: EngineCacheConfig) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"the engine cache {config.folder} cannot be used: {error}",
            "Check its permissions, or name another one with --engine-cache.",
        ) from error
