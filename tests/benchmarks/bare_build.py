"""The build that supervision is compared with: one process, the library alone, no monitor.

python -m tests.benchmarks.bare_build MODEL ENGINE, with the library's own prints on stderr. Prints one
line of JSON: moments on `time.monotonic`.
"""

import json
import os
import sys
import time


def main() -> None:
    """Build, write, print."""
    out = os.dup(1)
    os.dup2(2, 1)
    model, engine = sys.argv[1:]
    moments = {"began": time.monotonic()}
    import tensorrt_rtx  # type: ignore[import-untyped]  # noqa: PLC0415  (its import is measured)

    moments["imported"] = time.monotonic()
    logger = tensorrt_rtx.Logger(tensorrt_rtx.Logger.INFO)
    builder = tensorrt_rtx.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt_rtx.OnnxParser(network, logger)
    if not parser.parse_from_file(model):
        sys.exit("not parsed")
    config = builder.create_builder_config()
    moments["parsed"] = time.monotonic()
    serialized = builder.build_serialized_network(network, config)
    moments["built"] = time.monotonic()
    with open(engine, "wb") as file:  # noqa: PTH123  (as such a script is written)
        file.write(memoryview(serialized))
    moments["written"] = time.monotonic()
    os.write(out, json.dumps(moments).encode() + b"\n")


if __name__ == "__main__":
    main()
