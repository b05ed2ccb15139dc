"""``python -m trt_agent_tools.worker``: read one order, carry it out, end.

Exit status: 0 the order was carried out or ended as ordered, 1 the build failed, 2 the first order
was not valid, 3 the supervisor was gone.
"""

import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Literal

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import PROTOCOL, Failed, Goodbye, Hello, Outcome, Ready
from trt_agent_tools.model.request import BuildOrder, FirstOrder, InspectOrder, ProbeOrder
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.artefact import MOVING
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.control import Control, OrderError
from trt_agent_tools.worker.faults import BuildFault, BuildStopped
from trt_agent_tools.worker.process import (
    claim_descriptors,
    die_with_parent,
    limit_resources,
    take_signals,
)
from trt_agent_tools.worker.stop import Stop

FLUSH_S = 5.0
"""How long the last events may take to be written before the worker ends without them."""

MOVE_S = 5.0
"""How long a finished engine may take to come to its place once nobody watches any more."""


def main() -> int:
    """Carry out the order on stdin; return the exit status."""
    started = time.monotonic()
    take_signals()
    descriptors = claim_descriptors()
    die_with_parent()
    control = Control(descriptors.orders)
    try:
        order = control.first_order()
    except EOFError:
        return 3
    except OrderError as error:
        sys.stderr.write(f"the first order is not valid: {error}\n")
        return 2
    if order.protocol != PROTOCOL:
        sys.stderr.write(f"this worker speaks protocol {PROTOCOL}, not {order.protocol}\n")
        return 2
    limit_resources(None if isinstance(order, ProbeOrder) else order.memory_limit_bytes)
    leftovers = (
        [Path(order.partial_engine), Path(order.partial_manifest)]
        if isinstance(order, BuildOrder)
        else []
    )

    def gone() -> None:
        # Nobody watches this build any more. The builder may be deep in native code, so the
        # process ends here and now, and takes its half-written files along. Never given back: nothing
        # is moved any more. On a disk that hangs they stay, and the next supervisor settles them.
        if MOVING.acquire(timeout=MOVE_S):
            for path in leftovers:
                # What cannot be removed must not keep the process alive.
                with suppress(OSError):
                    path.unlink()
        os._exit(3)

    record = Path(order.record) if isinstance(order, BuildOrder) and order.record else None
    channel = Channel(descriptors.events, started=started, lost=gone, record=record)
    channel.emit(Hello(channel.now(), order.backend, os.getpid(), monotonic=started))
    stop = Stop()
    control.watch(stop, gone)
    outcome = _carry_out(order, channel, stop)
    channel.emit(Goodbye(channel.now(), outcome))
    channel.close(FLUSH_S)
    sys.stderr.flush()
    # Without the interpreter's and the library's own teardown: it can take seconds or crash, and
    # everything that this process promised is on disk and told.
    os._exit(1 if outcome is Outcome.FAILED else 0)


def _carry_out(order: FirstOrder, channel: Channel, stop: Stop) -> Outcome:
    try:
        if isinstance(order, ProbeOrder):
            return _probe(order.backend, channel)
        if isinstance(order, InspectOrder):
            from trt_agent_tools.worker.inspect import inspect_model  # noqa: PLC0415  (likewise)

            return inspect_model(order, channel)
        if order.backend == "replay":
            from trt_agent_tools.worker.replay import play  # noqa: PLC0415  (unused by real builds)

            return play(order, channel, stop)
        from trt_agent_tools.worker.build import RealBuild  # noqa: PLC0415  (likewise)

        return RealBuild(order, channel, stop).run()
    except BuildStopped:
        return Outcome.CANCELLED
    except BuildFault as fault:
        channel.emit(Failed(channel.now(), fault.info))
        return Outcome.FAILED
    except Exception as error:  # noqa: BLE001  (the last frame: told to the supervisor, traced in the log)
        traceback.print_exc()
        text = one_line(f"{type(error).__name__}: {error}", 500)
        code = (
            ErrorCode.OUT_OF_MEMORY if isinstance(error, MemoryError) else ErrorCode.INTERNAL_ERROR
        )
        channel.emit(
            Failed(
                channel.now(),
                ErrorInfo(code, f"the worker failed: {text}", "The build's log has the trace."),
            )
        )
        return Outcome.FAILED


def _probe(backend: Literal["tensorrt", "tensorrt_rtx", "replay"], channel: Channel) -> Outcome:
    from trt_agent_tools.worker.library import load_library  # noqa: PLC0415  (needed here alone)

    if backend == "replay":
        return Outcome.SUCCEEDED
    library = load_library(backend)
    channel.emit(Ready(channel.now(), library.versions, library.path, "", library.capabilities()))
    return Outcome.SUCCEEDED


if __name__ == "__main__":
    sys.exit(main())
