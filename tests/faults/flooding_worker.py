"""A script: a worker that speaks the protocol, sends far more than anybody needs, and then fails."""

import json
import os
import sys
import time

NAME = "a phase with a name that does not end" * 25
BATCH = 100


def encode(**event: object) -> bytes:
    """Return an event's line."""
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def send(data: bytes) -> None:
    """Write everything, however slow the reader is."""
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


def main() -> None:
    """Send so many bytes as the argument says, in phases, steps and log lines."""
    sys.stdin.readline()
    began = time.monotonic()
    send(encode(type="hello", at=0.0, backend="replay", pid=os.getpid(), protocol=1))
    sent, instance = 0, 0
    while sent < int(sys.argv[1]):
        at = time.monotonic() - began
        lines = []
        for _ in range(BATCH):
            instance += 1
            phase = {"at": at, "instance": instance}
            lines += [
                encode(type="phase_started", name=NAME, steps=1, origin="tensorrt", **phase),
                encode(type="step_completed", step=0, **phase),
                encode(type="log", at=at, severity="warning", message=NAME),
                encode(type="phase_finished", **phase),
            ]
        data = b"".join(lines)
        send(data)
        sent += len(data)
    error = {"code": "builder_error", "message": f"{sent} bytes were sent", "hint": "none"}
    at = time.monotonic() - began
    send(
        encode(type="failed", at=at, error=error) + encode(type="goodbye", at=at, outcome="failed")
    )


if __name__ == "__main__":
    main()
