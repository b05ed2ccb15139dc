"""What an identical request costs when the engine of the build before it is kept, against building again."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio

from tests.benchmarks.harness import Place, Row, middle, print_table, workplace
from trt_agent_tools.cli.demo_models import resnet50
from trt_agent_tools.model.events import EngineWritten, PhaseFinished, PhaseStarted
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.states import State
from trt_agent_tools.supervisor.config import EngineCacheConfig, SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

ENGINE_BYTES = 500_000_000
MOST_S = 0.3
REPEATS = 10
CACHE_BYTES = 10 << 30


class Requests:
    """One request made again and again, each time for another output."""

    def __init__(self, service: Supervisor, model: Path, backend: Backend) -> None:
        self._service = service
        self._model = model
        self._backend = backend
        self._numbers = count()

    async def seconds(self, *, reused: bool) -> float:
        """Return the time from `start_build` to `succeeded`; hold the answer to `reused`."""
        output = self._model.with_name(f"{self._model.stem}{next(self._numbers)}.engine")
        request = StartRequest(
            model=str(self._model),
            output=str(output),
            backend=self._backend,
            options=BuildOptions(reuse="verify" if reused else "off"),
        )
        began = time.perf_counter()
        build = await self._service.start(request)
        while not build.ended:
            build = await self._service.progress(build.build_id, wait_s=45, since_seq=build.seq)
        took = time.perf_counter() - began
        assert build.state is State.SUCCEEDED, build
        assert build.result
        assert (build.result.reused is not None) == reused, build
        await self._service._reuser.landed()
        return took


@asynccontextmanager
async def supervisor(place: Place) -> AsyncIterator[Supervisor]:
    """Run a supervisor with an engine cache in its state folder."""
    config = SupervisorConfig(
        *(place.state, (place.root,)),
        enable_replay=True,
        engine_cache=EngineCacheConfig(place.state / "engines", CACHE_BYTES),
    )
    async with Supervisor(config) as service:
        yield service


async def measure(place: Place) -> list[Row]:
    """Return the rows of the table."""
    settings = f'{{"type":"replay","engine_bytes":{ENGINE_BYTES}}}'
    small = place.recording(
        "small.jsonl",
        settings,
        [
            PhaseStarted(0.0, 1, "Building engine", 1),
            PhaseFinished(0.01, 1),
            EngineWritten(0.02, "e", 1, "0" * 64, "m"),
        ],
    )
    large = place.root / "resnet50.onnx"
    resnet50(large)
    async with supervisor(place) as service:
        replay = Requests(service, place.root / small, Backend.REPLAY)
        real = Requests(service, large, Backend.TENSORRT_RTX)
        rows = [Row("500 MB engine, small model: built", await replay.seconds(reused=False), "s")]
        again = [await replay.seconds(reused=True) for _ in range(REPEATS)]
        rows.append(middle("500 MB engine, small model: reused", again, "s", MOST_S))
        (place.root / "link").hardlink_to(place.root / "small0.engine")
        read = await replay.seconds(reused=True)
        rows.append(Row("  after a link more: the engine is read in full", read, "s"))
        size = f"{large.stat().st_size / 1e6:.0f} MB model"
        rows.append(Row(f"{size}, real build: built", await real.seconds(reused=False), "s"))
        again = [await real.seconds(reused=True) for _ in range(REPEATS)]
        rows.append(middle(f"{size}, real build: reused", again, "s", MOST_S))
    return rows


def main() -> None:
    """Print the table."""
    with workplace() as place:
        rows = anyio.run(measure, place)
    print_table("Engine reuse, from start_build to succeeded, on one file system", rows)


if __name__ == "__main__":
    main()
