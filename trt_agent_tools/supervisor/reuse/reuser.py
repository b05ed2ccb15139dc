"""Answers builds with kept engines, and keeps the engines of builds that were made."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from trt_agent_tools.model.events import EngineWritten
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.supervisor_events import EngineReused
from trt_agent_tools.supervisor.artefact import Artefact
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.config import EngineCacheConfig
from trt_agent_tools.supervisor.devices import Device
from trt_agent_tools.supervisor.file_digest import (
    Interrupt,
    InterruptedWorkError,
    Stamp,
    interruptible,
)
from trt_agent_tools.supervisor.outcome import LATE, reason_for
from trt_agent_tools.supervisor.reuse.cache import EngineCache, Entry
from trt_agent_tools.supervisor.reuse.device_kind import device_kind
from trt_agent_tools.supervisor.reuse.flights import Flight, Flights
from trt_agent_tools.supervisor.reuse.key import (
    asked,
    build_key,
    library_version,
    plugin_digests,
    version_told,
)
from trt_agent_tools.supervisor.reuse.lookup import Found, Looked, digest_model, look_up
from trt_agent_tools.supervisor.reuse.publish import (
    EntryLostError,
    PublishError,
    manifest_of_reuse,
    publish,
)

AT_ONCE = 2
"""So many builds read models or engines at the same time."""

NOTED_AFTER_S = 1.0
"""A lookup that takes longer is told of: the build is still queued and holds no device."""

_log = logging.getLogger(__name__)


class Reuser:
    """The engine cache of a supervisor. Without one, or with a size of 0, nothing is reused or kept."""

    def __init__(self, config: EngineCacheConfig | None, devices: tuple[Device, ...]) -> None:
        self.cache = (
            EngineCache(config.folder, config.limit_bytes)
            if config is not None and config.limit_bytes > 0
            else None
        )
        self.flights = Flights()
        self.places = anyio.CapacityLimiter(AT_ONCE)
        self._devices = devices
        self._kinds: dict[str, str | None] = {}
        self._is_failing = False

    async def sweep(self) -> None:
        """Remove what a server that died in a change of the cache has left. Raises nothing."""
        if self.cache is not None:
            try:
                await anyio.to_thread.run_sync(self.cache.sweep, abandon_on_cancel=True)
            except OSError as error:
                self.warn(error)

    @contextmanager
    def enter(self, build: Build) -> Iterator["BuildReuse | None"]:
        """Let later builds wait for this one until the block is left; None where nothing is reused."""
        if self.cache is None or build.policy.reuse == "off":
            yield None
            return
        same = asked(build.order, build.session.owner)
        with self.flights.enter(build.order, same, build.ended) as flight:
            yield BuildReuse(self, self.cache, build, flight)

    async def landed(self) -> None:
        """Return when no build that has ended waits for its engine to be kept."""
        for flight in self.flights.live():
            await flight.landed.wait()

    def kinds(self) -> dict[str, str]:
        """Return the kind of each device by its name, where it is known. Call it in a thread."""
        for device in self._devices:
            if device.name not in self._kinds:
                self._kinds[device.name] = device_kind(device)
                if self._kinds[device.name] is None:
                    _log.warning(
                        "no engine is reused on %s: what kind of GPU it is cannot be told; "
                        'pip install "trt-agent-tools[gpu]"',
                        device.name,
                    )
        return {name: kind for name, kind in self._kinds.items() if kind is not None}

    def warn(self, error: OSError) -> None:
        """Log, once until it works again, that the cache cannot be used."""
        if not self._is_failing:
            _log.warning("engines are neither reused nor kept: %s", error)
        self._is_failing = True

    def works(self) -> None:
        """Note that the cache could be used."""
        self._is_failing = False


class BuildReuse:
    """What reuse does for one build: `answer` first, and `finish` after its end."""

    def __init__(self, owner: Reuser, cache: EngineCache, build: Build, flight: Flight) -> None:
        self._owner = owner
        self._cache = cache
        self._build = build
        self._flight = flight
        self._keys: dict[str, str] = {}
        self._used: tuple[Entry, Stamp] | None = None

    async def answer(self) -> bool:
        """End the queued build with a kept engine, if there is one; return whether it has ended.

        Waits for an earlier build of the same engine. May be cancelled until the engine is found.
        """
        try:
            return await self._answer()
        except Exception:  # noqa: BLE001  (whatever is wrong with the cache, an engine can be built)
            _log.exception("looking for a kept engine for %s", self._build.facts.build_id)
            return self._build.has_ended

    async def _answer(self) -> bool:
        order = self._build.order
        self._keys = await interruptible(self._find_keys)
        if not self._keys or order.options.reuse == "off":
            return False
        await self._wait_for_the_same()
        try:
            kept = await interruptible(self._find_kept)
        except OSError as error:
            self._owner.warn(error)
            return False
        if not kept:
            return False
        looked = await self._noted(partial(look_up, self._cache, kept, order))
        for note in looked.notes:
            await self._build.note(note)
        return looked.found is not None and await self._end_with(looked.found)

    async def finish(self, artefact: Artefact | None) -> None:
        """Keep the engine of a build that has ended, or note that a kept one was used. Raises nothing."""
        try:
            if self._used is not None:
                entry, verified = self._used
                await anyio.to_thread.run_sync(entry.used, verified, abandon_on_cancel=True)
            elif artefact is not None:
                await interruptible(partial(self._keep, artefact))
                self._owner.works()
        except FileNotFoundError:
            # The entry went meanwhile, or the user moved the engine away.
            return
        except OSError as error:
            self._owner.warn(error)

    def _find_keys(self, interrupt: Interrupt) -> dict[str, str]:
        """Return the build key on each device that the build may get, by the device's name."""
        order = self._build.order
        library, plugins = library_version(order.backend), plugin_digests(order, interrupt)
        if library is None or plugins is None:
            return {}
        owner = self._build.session.owner
        return {
            name: build_key(order, owner=owner, library=library, device_kind=kind, plugins=plugins)
            for name, kind in self._owner.kinds().items()
        }

    def _find_kept(self, interrupt: Interrupt) -> list[str]:
        """Return those of the keys that engines are kept of, of whatever model.

        Raises:
            OSError: the cache cannot be read.
        """
        interrupt.check()
        keys = dict.fromkeys(self._keys.values())
        return [key for key in keys if self._cache.has_any(key)]

    async def _wait_for_the_same(self) -> None:
        for other in self._owner.flights.before(self._flight):
            if await self._has_the_model_of(other.order):
                if not other.ended.is_set():
                    await self._build.note(
                        f"Waits for {other.order.build_id}, which builds the same engine."
                    )
                await other.landed.wait()
                if other.has_engine:
                    return

    async def _has_the_model_of(self, other: BuildOrder) -> bool:
        order = self._build.order
        if order.model_identity is not None and order.model_identity == other.model_identity:
            return True
        return await interruptible(partial(_same_models, order, other), self._owner.places)

    async def _noted(self, look: Callable[[Interrupt], Looked]) -> Looked:
        async def say_so() -> None:
            await anyio.sleep(NOTED_AFTER_S)
            await self._build.note("Reads the model, to see whether an engine can be reused.")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say_so)
            looked = await interruptible(look, self._owner.places)
            tasks.cancel_scope.cancel()
        return looked

    async def _end_with(self, found: Found) -> bool:
        build = self._build
        manifest = manifest_of_reuse(found.entry, build.order, found.model, found.sidecars)
        # What is at the output and what is told of it go together, whoever cancels meanwhile.
        with anyio.CancelScope(shield=True):
            try:
                if not await self._publish(found, manifest):
                    return False
            except PublishError as error:
                await build.move(State.FAILED, reason_for(error.info.code), error=error.info)
                return True
            engine = manifest.engine
            build.record(
                EngineReused(
                    build.now(),
                    EngineWritten(
                        *(build.now(), engine.path, engine.bytes, engine.sha256),
                        build.order.manifest,
                    ),
                    found.entry.manifest.build_id,
                )
            )
            if build.cancel_request is not None:
                await build.note(LATE)
            self._used = found.entry, found.verified
            self._flight.has_engine = True
            await build.move(State.SUCCEEDED, Reason.COMPLETED)
        return True

    async def _publish(self, found: Found, manifest: Manifest) -> bool:
        """Return whether the engine is at the output. An end that is asked for in time prevents it."""
        interrupt = Interrupt()

        async def stop() -> None:
            await self._build.cancel_asked.wait()
            interrupt.tell()

        problem: PublishError | None = None
        is_there = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            try:
                await anyio.to_thread.run_sync(
                    publish, found.entry, found.verified, self._build.order, manifest, interrupt
                )
                is_there = True
            except (InterruptedWorkError, EntryLostError) as error:
                _log.info("build %s reuses nothing: %s", self._build.facts.build_id, error)
            except PublishError as error:
                problem = error
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem
        return is_there

    def _keep(self, artefact: Artefact, interrupt: Interrupt) -> None:
        manifest, device = artefact.told, self._build.view.device
        key = self._keys.get(device or "")
        # Asked again: what was there when the build was asked for may be another by now.
        if manifest is None or key is None or self._find_keys(interrupt).get(device or "") != key:
            return
        if version_told(manifest) != library_version(manifest.backend):
            return
        self._flight.has_engine = self._cache.add(key, manifest, artefact.stamp, interrupt)


def _same_models(order: BuildOrder, other: BuildOrder, interrupt: Interrupt) -> bool:
    try:
        sizes = {Path(each.model).stat().st_size for each in (order, other)}
        if len(sizes) > 1:
            return False
        mine, theirs = (digest_model(each, interrupt) for each in (order, other))
    except OSError:
        return False
    return mine is not None and theirs is not None and mine.sha256 == theirs.sha256
