"""A worker that looks at a model, alone: what it says, and what it took."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from trt_agent_tools.model.event_lines import WORKER_EVENT
from trt_agent_tools.model.events import PROTOCOL, Failed, Inspected
from trt_agent_tools.model.request import InspectOrder

MEMORY_BYTES = 1 << 30
TIME_S = 26.0
"""As a supervisor gives it, nearly."""

LONGEST_S = 60

# A process's peak begins with that of the one which started it, so a small one is put between. It keeps
# the worker's orders open, whose end would end the worker.
MEASURED = """
import resource, subprocess, sys
worker = subprocess.Popen(
    [sys.executable, "-m", "trt_agent_tools.worker"],
    stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
)
worker.stdin.write(sys.stdin.buffer.readline())
worker.stdin.flush()
worker.wait()
sys.stderr.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""


@dataclass(frozen=True)
class Look:
    """What a worker answered, how long it took, and the most memory that it held."""

    answer: Inspected | Failed
    seconds: float
    peak_rss_bytes: int

    @property
    def found(self) -> Inspected:
        """What it found; it did not fail."""
        assert isinstance(self.answer, Inspected), self.answer
        return self.answer


def look(
    model: Path, *, time_limit_s: float = TIME_S, environment: dict[str, str] | None = None
) -> Look:
    """Start a worker, let it look at a model, and wait for its end."""
    order = InspectOrder(
        protocol=PROTOCOL,
        backend="tensorrt_rtx",
        model=str(model),
        roots=[str(model.parent.resolve())],
        memory_limit_bytes=MEMORY_BYTES,
        time_limit_s=time_limit_s,
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED],
        input=order.model_dump_json().encode() + b"\n",
        capture_output=True,
        check=True,
        timeout=LONGEST_S,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **(environment or {})},
    )
    lines = done.stdout.splitlines()
    told = [line for line in lines if json.loads(line)["type"] in {"inspected", "failed"}]
    assert len(told) == 1, lines
    answer = WORKER_EVENT.validate_json(told[0])
    assert isinstance(answer, Inspected | Failed)
    return Look(answer, time.monotonic() - began, int(done.stderr) * 1024)
