"""What past builds say of one: looked up as it is accepted, and again as more is known of it.

A build gets an estimate at most from what is in the journal. Where that cannot be read, or not in time,
there is none: no build waits for it or fails of it.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

import anyio
import anyio.to_thread

from trt_agent_tools.model.events import Inspected
from trt_agent_tools.model.findings import most_frequent
from trt_agent_tools.model.inspection import Expected
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.progress.estimate import estimate
from trt_agent_tools.progress.past import Estimate, Past, Setting, Shape, Wanted
from trt_agent_tools.progress.view import BuildView, Told
from trt_agent_tools.store.history import KnownModel, SidecarStamp
from trt_agent_tools.store.journal import Journal, JournalError
from trt_agent_tools.supervisor.admission import Admitted
from trt_agent_tools.supervisor.devices import Device
from trt_agent_tools.supervisor.estimates.model_files import (
    are_unchanged,
    is_filled,
    sidecars_of,
    stamp_of,
)
from trt_agent_tools.supervisor.estimates.outlook import Outlook, options_digest
from trt_agent_tools.supervisor.reuse.device_kind import device_kind

LOOK_UP_S = 0.5
"""How long a lookup may take: whoever starts a build waits for it."""

LOOKING_AT_ONCE = 4
"""So many lookups touch the file system at the same time."""

OTHERS = 150
"""So many past builds of other models are compared with."""

_log = logging.getLogger(__name__)


class History:
    """Asks a journal. `devices` are those that a build may be given."""

    def __init__(self, journal: Journal, devices: tuple[Device, ...]) -> None:
        self._journal = journal
        self._devices = devices
        self._kinds: dict[str, str] = {}
        # Of its own: a driver or a disk that hangs must not take the threads of others.
        self._looking = anyio.CapacityLimiter(LOOKING_AT_ONCE)
        self._asking = anyio.CapacityLimiter(1)

    async def outlook(self, admitted: Admitted) -> Outlook:
        """Return what is known of a build as it is accepted, within `LOOK_UP_S`; raises nothing."""
        found = Outlook(Wanted(Setting(admitted.backend, "", ""), None, None, None))
        with anyio.move_on_after(LOOK_UP_S):
            stamp, options = await anyio.to_thread.run_sync(
                _looked_at, admitted, abandon_on_cancel=True, limiter=self._looking
            )
            found = Outlook(replace(found.wanted, options=options), None, stamp)
            try:
                found = await self._known(found, admitted)
            except JournalError as error:
                _log.warning("nothing is expected of a build: %s", error)
        return found

    async def refined(self, outlook: Outlook, view: BuildView, device: str) -> Outlook:
        """Return what is known of a build on the device of this name by now, within `LOOK_UP_S`.

        It is `outlook` itself if nothing new is known. Raises nothing.
        """
        found = outlook
        with anyio.move_on_after(LOOK_UP_S):
            wanted = _wanted(outlook.wanted, view.told, (await self._all_kinds())[device])
            if wanted != outlook.wanted:
                # Kept for the record, also where there is no answer in time.
                found = replace(outlook, wanted=wanted)
                try:
                    found = replace(found, estimate=await self._estimate(wanted))
                except JournalError as error:
                    _log.warning("no more is expected of a build: %s", error)
        return found

    async def sidecars(
        self, outlook: Outlook, view: BuildView, order: BuildOrder
    ) -> tuple[SidecarStamp, ...] | None:
        """Return by what the sidecars of a build's model are known again, within `LOOK_UP_S`.

        None where the model's files cannot be known again, or are others by now.
        """
        inputs, stamp = view.told.inputs, outlook.stamp
        if inputs is None or stamp is None:
            return None
        with anyio.move_on_after(LOOK_UP_S):
            return await anyio.to_thread.run_sync(
                sidecars_of, order, stamp, inputs, abandon_on_cancel=True, limiter=self._looking
            )
        return None

    async def inspected(
        self, backend: str, options: BuildOptions, found: Inspected
    ) -> Expected | None:
        """Return how long a build of a model that was looked at takes; None where nothing tells."""
        digest = options_digest(options)
        shape = Shape(
            nodes=sum(found.operators.values()),
            weight_bytes=found.weights.bytes,
            operators=most_frequent(found.operators),
            profile_elements=options.profile_elements,
            optimization_level=options.builder_optimization_level,
        )
        wanted = Wanted(Setting(backend, "", ""), found.sha256, digest, shape)
        expected = None
        with anyio.move_on_after(LOOK_UP_S):
            try:
                expected = await self._estimate(await self._with_setting(wanted))
            except JournalError as error:
                _log.warning("nothing is expected of a model: %s", error)
        return None if expected is None else _shown(expected)

    async def with_options(
        self, outlook: Outlook, options: Mapping[int, BuildOptions]
    ) -> dict[int, Estimate]:
        """Return how long builds of the same model take with each of `options`, where past ones tell.

        Within `LOOK_UP_S`; what was not found by then is left out. Raises nothing.
        """
        found: dict[int, Estimate] = {}
        wanted = outlook.wanted
        if wanted.model is None:
            return found
        with anyio.move_on_after(LOOK_UP_S):
            try:
                for key, asked in options.items():
                    cache_is_filled = await anyio.to_thread.run_sync(
                        is_filled, asked.timing_cache, abandon_on_cancel=True
                    )
                    digest = options_digest(asked, cache_is_filled=cache_is_filled)
                    same = await self._journal.same(wanted.setting, wanted.model, digest)
                    told = estimate(replace(wanted, options=digest, shape=None), same, ())
                    if told is not None:
                        found[key] = told
            except JournalError as error:
                _log.warning("no past builds with other options are told of: %s", error)
        return found

    async def _known(self, outlook: Outlook, admitted: Admitted) -> Outlook:
        wanted = await self._with_setting(outlook.wanted)
        known = None if outlook.stamp is None else await self._journal.by_stamp(outlook.stamp)
        if known is not None and await anyio.to_thread.run_sync(
            are_unchanged,
            admitted.model,
            known.sidecars,
            abandon_on_cancel=True,
            limiter=self._looking,
        ):
            wanted = replace(
                wanted, model=known.model, shape=_with_options(known, admitted.options)
            )
        return replace(outlook, wanted=wanted, estimate=await self._estimate(wanted))

    async def _with_setting(self, wanted: Wanted) -> Wanted:
        kinds = set((await self._all_kinds()).values())
        if len(kinds) != 1:
            # Which of several kinds a build gets is known only once it has one.
            return wanted
        backend, device = wanted.setting.backend, kinds.pop()
        # Until the library says so itself, it is the one that built last.
        version = await self._journal.latest_version(backend, device)
        return replace(wanted, setting=Setting(backend, version or "", device))

    async def _all_kinds(self) -> Mapping[str, str]:
        """Return what kind of device is behind each name; one that is not known is of its own kind."""
        if not self._kinds:
            await anyio.to_thread.run_sync(
                self._find_kinds, abandon_on_cancel=True, limiter=self._asking
            )
        return self._kinds

    def _find_kinds(self) -> None:
        # Kept by the thread itself: whoever asked may have gone by then, and the next one waits its turn.
        self._kinds = self._kinds or {
            each.name: device_kind(each) or each.name for each in self._devices
        }

    async def _estimate(self, wanted: Wanted) -> Estimate | None:
        same: tuple[Past, ...] = ()
        others: tuple[Past, ...] = ()
        if wanted.model is not None and wanted.options is not None:
            same = await self._journal.same(wanted.setting, wanted.model, wanted.options)
        if not same and wanted.shape is not None:
            others = await self._journal.others(wanted.setting, OTHERS)
        return estimate(wanted, same, others)


def _looked_at(admitted: Admitted) -> tuple[str | None, str]:
    cache_is_filled = is_filled(admitted.options.timing_cache)
    return (
        stamp_of(admitted.model, admitted.model_identity),
        options_digest(admitted.options, cache_is_filled=cache_is_filled),
    )


def _with_options(known: KnownModel, options: BuildOptions) -> Shape | None:
    if known.shape is None:
        return None
    return replace(
        known.shape,
        profile_elements=options.profile_elements,
        optimization_level=options.builder_optimization_level,
    )


def _wanted(before: Wanted, told: Told, kind: str) -> Wanted:
    """Return what is asked of past builds, by what the worker has told so far."""
    backend = before.setting.backend
    version = told.versions.get(backend, "") if told.versions else before.setting.version
    return Wanted(
        setting=Setting(backend, version, kind),
        model=told.inputs.sha256 if told.inputs else before.model,
        options=before.options,
        shape=told.shape or before.shape,
    )


def _shown(expected: Estimate) -> Expected:
    return Expected(
        build_s=round(expected.total_s, 1),
        low_s=round(expected.low_s, 1),
        high_s=round(expected.high_s, 1),
        # A build holds one device from its start to its end.
        gpu_s=round(expected.total_s, 1),
        builds=expected.builds,
        same=expected.same,
    )
