"""One real build, from the order to the engine file."""

import gc
import sys
from datetime import datetime, timezone
from pathlib import Path

from trt_agent_tools.model.events import (
    EngineWritten,
    JsonValue,
    LogLine,
    ModelRead,
    OptionApplied,
    Outcome,
    Ready,
    Severity,
)
from trt_agent_tools.model.manifest import FileDigest, Manifest, OptionInEffect
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.artefact import check_output, write_artefact
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.counting import ModelCounts
from trt_agent_tools.worker.digest import InputDigests, digest_file, digested
from trt_agent_tools.worker.failure import build_failure
from trt_agent_tools.worker.faults import BuildFault, BuildStopped
from trt_agent_tools.worker.gpu_identity import gpu_identity
from trt_agent_tools.worker.judged import check_inside, check_model
from trt_agent_tools.worker.library import Library, load_library
from trt_agent_tools.worker.library_types import Builder, IBuilderConfig, INetworkDefinition
from trt_agent_tools.worker.log_tail import LogTail
from trt_agent_tools.worker.opened import OpenedModel
from trt_agent_tools.worker.options import (
    apply_options,
    check_options,
    create_network,
    set_parser_flags,
)
from trt_agent_tools.worker.parse import parse_model
from trt_agent_tools.worker.plugins import load_plugins
from trt_agent_tools.worker.profiles import add_profiles
from trt_agent_tools.worker.recorder import PhaseRecorder, make_monitor
from trt_agent_tools.worker.sidecars import find_sidecars
from trt_agent_tools.worker.stop import Stop
from trt_agent_tools.worker.timing_cache import CacheError, CacheState, TimingCache, cache_path

COUNTS_S = 0.1
"""So long the build waits for counts that take longer than parsing."""


class RealBuild:
    """Carries one order out. Cancelling is seen between the phases here and in TensorRT's steps."""

    def __init__(self, order: BuildOrder, channel: Channel, stop: Stop) -> None:
        self._order = order
        self._channel = channel
        self._stop = stop
        self._recorder = PhaseRecorder(channel, stop)
        self._log = LogTail(channel)
        self._applied: list[OptionInEffect] = []
        channel.each_heartbeat(self._log.poll)

    def run(self) -> Outcome:
        """Build, and return how it ended.

        Raises:
            BuildFault: the build cannot go on.
            BuildStopped: an order to cancel was seen before the engine was complete.
        """
        order = self._order
        backend = order.backend
        if backend == "replay":
            raise ValueError("a replay is no real build")
        with self._recorder.phase("Importing TensorRT"):
            library = load_library(backend)
            capabilities = library.capabilities()
        self._channel.emit(
            Ready(self._channel.now(), library.versions, library.path, order.device, capabilities)
        )
        check_options(capabilities, order.options)
        self._go_on()
        logger = library.module.Logger(library.module.Logger.INFO)
        builder = library.module.Builder(logger)
        # The library's own plugins; models exported for them name them as operators.
        library.module.init_libnvinfer_plugins(logger, "")
        load_plugins(library, order.options.plugins, self._report, self._log.last_error)
        with self._recorder.phase("Parsing the model"):
            # Never closed: with the build ends this process, and until then a thread may read them.
            model = OpenedModel.of(order)
            inputs = [model.file, *find_sidecars(model)]
            check_output(order, inputs)
            digests = InputDigests(
                inputs,
                lambda taken: self._channel.emit(digested(self._channel.now(), taken)),
            )
            counts = ModelCounts(model.file)
            network = create_network(
                library, builder, order.options.network_flags, self._report, self._log.last_error
            )
            parser = library.module.OnnxParser(network, logger)
            set_parser_flags(library, parser, order.options.parser_flags, self._report)
            # TensorRT opens files by path: what another path leads to from here on the digests find out.
            check_model(order)
            parse_model(parser, network, model.path)
            config = builder.create_builder_config()
            self._tell_counts(counts, config)
        self._go_on()
        apply_options(library, config, order.options, self._report, self._log.last_error)
        add_profiles(
            library, builder, network, config, order.options, self._report, self._log.last_error
        )
        engine = self._build(library, builder, network, config)
        # The engine is complete from here on: an order to cancel that was not seen yet is late.
        with self._recorder.phase("Writing the engine"):
            self._write(library, engine, digests.wait())
        return Outcome.SUCCEEDED

    def _tell_counts(self, counts: ModelCounts, config: IBuilderConfig) -> None:
        """Tell what the model asks of the builder; without it a build is as good."""
        found = counts.take(COUNTS_S)
        if found is None:
            return
        options = self._order.options
        level = options.builder_optimization_level
        in_effect: object = getattr(config, "builder_optimization_level", None)
        if level is None and isinstance(in_effect, int):
            level = in_effect
        self._channel.emit(
            ModelRead(
                at=self._channel.now(),
                nodes=found.nodes,
                operators=found.most_frequent,
                weight_bytes=found.weight_bytes,
                profile_elements=options.profile_elements,
                # One that is asked for is in effect, or the build ends with the next call.
                optimization_level=level,
            )
        )

    def _build(
        self,
        library: Library,
        builder: Builder,
        network: INetworkDefinition,
        config: IBuilderConfig,
    ) -> memoryview:
        cache = self._load_cache(library, config)
        config.progress_monitor = make_monitor(library.module.IProgressMonitor, self._recorder)
        # A collection takes 0.1 s once 100,000 phases were made, and runs inside a callback. What is kept
        # from here on ends with the process.
        gc.disable()
        try:
            with self._recorder.phase("Building"):
                serialized = builder.build_serialized_network(network, config)
        finally:
            # After a cancel or a failure too: what was measured is as true.
            if cache is not None:
                self._merge_cache(cache)
        if serialized is None:
            self._go_on()
            raise build_failure(self._log.errors())
        # A memoryview keeps the engine alive and copies nothing; bytes() would hold Python's lock.
        return memoryview(serialized)

    def _load_cache(self, library: Library, config: IBuilderConfig) -> TimingCache | None:
        """Return the timing cache that the builder got; None where it goes on without one."""
        asked = self._order.options.timing_cache
        if asked is None:
            return None
        path = Path(asked)
        try:
            check_inside(path, self._order)
            path = cache_path(path, library.versions[library.backend], gpu_identity())
            # The name in a folder may be a link too.
            check_inside(path, self._order)
            cache = TimingCache(config, path)
            cache.load(self._log.last_error)
        except CacheError as error:
            self._report("timing_cache", asked, f"{CacheState.REFUSED.value}: {path}")
            self._warn(f"the timing cache {path} was refused: {error}; the build goes on without")
            return None
        self._report("timing_cache", asked, f"{cache.state.value}: {cache.path}")
        return cache

    def _merge_cache(self, cache: TimingCache) -> None:
        try:
            with self._recorder.phase("Saving the timing cache"):
                check_inside(cache.path, self._order)
                cache.merge()
        except CacheError as error:
            self._warn(f"the timing cache {cache.path} was not saved: {error}")
        except BuildFault as fault:
            # The engine does not need the file: a warning, not the end of a build that went well.
            self._warn(f"the timing cache was not saved: {fault.info.message}")

    def _warn(self, text: str) -> None:
        self._channel.emit(LogLine(self._channel.now(), Severity.WARNING, one_line(text)))

    def _write(self, library: Library, engine: memoryview, inputs: list[FileDigest]) -> None:
        order = self._order

        def manifest(digest: FileDigest) -> Manifest:
            return Manifest(
                build_id=order.build_id,
                label=order.label,
                policy=order.policy,
                created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                backend=order.backend,
                library=library.path,
                versions=library.versions,
                device=order.device,
                model=inputs[0],
                sidecars=inputs[1:],
                engine=digest,
                options=self._applied,
                phases=self._recorder.timings(),
                log=_log_digest(),
            )

        digest = write_artefact(order, engine, manifest)
        self._channel.emit(
            EngineWritten(
                self._channel.now(), digest.path, digest.bytes, digest.sha256, str(order.manifest)
            )
        )

    def _report(self, name: str, requested: JsonValue, effective: JsonValue) -> None:
        self._applied.append(OptionInEffect(name=name, requested=requested, effective=effective))
        self._channel.emit(OptionApplied(self._channel.now(), name, requested, effective))

    def _go_on(self) -> None:
        if self._stop.asked:
            raise BuildStopped(self._stop.reason)


def _log_digest() -> FileDigest | None:
    """Return the digest of the log so far, where fd 2 is a file."""
    sys.stderr.flush()
    log = Path("/proc/self/fd/2").resolve()
    return digest_file(log) if log.is_file() else None
