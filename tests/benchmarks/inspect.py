"""Looking at models of any size: how long a worker takes, and how much memory it holds at most."""

from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.harness import Row, print_table, workplace
from tests.integration.looking import look
from tests.onnx_files import small_model, write_external, write_inline
from trt_agent_tools.cli.demo_models import transformer

MOST_MIB = 300
MIB = 1 << 20
REPEATS = 3

MODELS: dict[str, Callable[[Path], object]] = {
    "small": lambda path: path.write_bytes(small_model()),
    "transformer, 128 blocks, 100 MB": lambda path: transformer(path, blocks=128),
    "1.9 GB inside": lambda path: write_inline(path, 1_900_000_000),
    "10 GB beside": lambda path: write_external(path, 10_000_000_000),
}


def main() -> None:
    """Print the table."""
    rows: list[Row] = []
    with workplace() as place:
        for name, make in MODELS.items():
            path = place.root / "m.onnx"
            make(path)
            whole = look(path)
            bare = [look(path, time_limit_s=0.0) for _ in range(REPEATS)]
            digest = "taken" if whole.found.sha256 else "given up"
            peak = max(each.peak_rss_bytes for each in (whole, *bare))
            rows += [
                Row(f"{name}: with its digest", whole.seconds, "s", None, 2, digest),
                Row(f"{name}: without", min(each.seconds for each in bare), "s", None, 2),
                Row(f"{name}: peak resident", peak / MIB, "MiB", MOST_MIB, 0),
            ]
            for file in place.root.iterdir():
                file.unlink()
    print_table("Looking at a model, worker and library started anew each time", rows)


if __name__ == "__main__":
    main()
