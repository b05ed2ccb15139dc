"""Models, paths and folders of somebody who means harm, through a real supervisor and real workers."""

import json
import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest
from onnx import TensorProto, helper

from tests.conftest import processes_of_this_run
from tests.faults.conftest import Action, Play, Supervise, Watcher
from tests.unit.build_orders import ENGINE, build_order, files, manifest_for
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import BUILD_TOKEN_ENV
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.request import Backend, BuildOrder, StartRequest
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import MAX_LINE
from trt_agent_tools.supervisor.artefact import settle_artefact
from trt_agent_tools.worker.artefact import write_artefact
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.judged import check_inside, check_model

pytestmark = pytest.mark.anyio

HELD: Action = {"at": 0.1, "do": "hang_idle"}


async def test_the_worker_does_not_inherit_the_servers_secrets(
    supervise: Supervise, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "the-secret-value")
    async with supervise() as watcher:
        build = await held(watcher, play(HELD))
        workers = [process for process in processes_of_this_run() if is_worker(process)]
        environments = [Path(f"/proc/{worker.pid}/environ").read_bytes() for worker in workers]
        await watcher.cancel(build, at_once=True)
    assert environments
    assert all(b"the-secret-value" not in environment for environment in environments)


async def test_what_the_state_folder_holds_is_its_users_alone(
    supervise: Supervise, play: Play, tmp_path: Path, lax_umask: None
) -> None:
    async with supervise() as watcher:
        assert (await watcher.end(await watcher.start(play(recording="quick")))).state is (
            State.SUCCEEDED
        )
        state = tmp_path / "state"
        modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [state, *state.rglob("*")]}
    assert {"build.log", "events.jsonl"} <= {path.name for path in modes}
    assert len(modes) > 6
    wrong = {
        str(path): oct(mode)
        for path, mode in modes.items()
        if mode != (0o700 if path.is_dir() else 0o600)
    }
    assert not wrong


@pytest.mark.parametrize(
    ("swap", "code"),
    [("another file", ErrorCode.MODEL_CHANGED), ("a link out", ErrorCode.OUTSIDE_ROOTS)],
)
async def test_a_model_that_is_swapped_while_its_build_waits_is_not_read(
    supervise: Supervise, play: Play, root: Path, tmp_path: Path, swap: str, code: ErrorCode
) -> None:
    outside = tmp_path / "outside.jsonl"
    async with supervise() as watcher:
        first = await held(watcher, play(HELD))
        request = play(recording="quick")
        waiting = await watcher.start(request)
        model = Path(request.model)
        outside.write_bytes(model.read_bytes())
        if swap == "another file":
            other = root / "other"
            other.write_bytes(model.read_bytes())
            other.replace(model)
        else:
            model.unlink()
            model.symlink_to(outside)
        await watcher.cancel(first, at_once=True)
        ended = await watcher.end(waiting)
    assert ended.state is State.FAILED
    assert ended.error
    assert ended.error.code is code
    assert not list(root.glob("*.engine"))


async def test_a_models_folder_that_becomes_a_link_out_of_the_roots_is_not_read(
    tmp_path: Path,
) -> None:
    inside, outside = tmp_path / "root" / "models", tmp_path / "outside"
    inside.mkdir(parents=True)
    outside.mkdir()
    order = judged(build_order(inside), [tmp_path / "root"])
    check_model(order)
    inside.rename(tmp_path / "moved")
    # The very same file: only where it is has changed.
    os.link(tmp_path / "moved" / "m.onnx", outside / "m.onnx")
    inside.symlink_to(outside)
    with pytest.raises(BuildFault) as raised:
        check_model(order)
    assert raised.value.info.code is ErrorCode.OUTSIDE_ROOTS


@pytest.mark.parametrize("swap", ["a link out", "another folder"])
async def test_an_output_folder_that_is_swapped_during_a_build_is_not_written_to(
    supervise: Supervise, play: Play, root: Path, tmp_path: Path, swap: str
) -> None:
    folder, elsewhere = root / "engines", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    async with supervise() as watcher:
        request = play({"at": 0.1, "do": "hang_idle", "for_s": 2}, recording="quick")
        build = await held(watcher, request.model_copy(update={"output": str(folder / "m.engine")}))
        folder.rename(root / "moved")
        if swap == "a link out":
            folder.symlink_to(elsewhere)
        else:
            folder.mkdir()
        ended = await watcher.end(build)
    assert ended.state is State.FAILED
    assert ended.error
    assert ended.error.code is ErrorCode.OUTPUT_NOT_WRITABLE
    for place in (folder, elsewhere, root / "moved"):
        assert list(place.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
async def test_a_folder_that_is_swapped_between_two_writes_does_not_redirect_the_second(
    tmp_path: Path, overwrite: bool
) -> None:
    folder, elsewhere, moved = (tmp_path / name for name in ("engines", "elsewhere", "moved"))
    folder.mkdir()
    elsewhere.mkdir()
    order = judged(build_order(folder, overwrite=overwrite), [tmp_path])

    def swap(digest: FileDigest) -> Manifest:
        folder.rename(moved)
        folder.symlink_to(elsewhere)
        return manifest_for(ENGINE, order)

    with pytest.raises(BuildFault) as raised:
        write_artefact(order, memoryview(ENGINE), swap)
    assert raised.value.info.code is ErrorCode.OUTPUT_NOT_WRITABLE
    assert files(elsewhere) == {}
    assert set(files(moved)) == {"m.onnx"}


async def test_a_link_where_the_temporary_file_goes_is_not_written_through(tmp_path: Path) -> None:
    folder, victim = tmp_path / "engines", tmp_path / "victim"
    folder.mkdir()
    order = judged(build_order(folder), [tmp_path])
    Path(order.partial_engine).symlink_to(victim)
    with pytest.raises(BuildFault):
        write_artefact(order, memoryview(ENGINE), lambda _: manifest_for(ENGINE, order))
    assert not victim.exists()


async def test_a_timing_cache_whose_folder_leads_out_of_the_roots_is_not_used(
    tmp_path: Path,
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    order = judged(build_order(root), [root])
    check_inside(root / "caches" / "c.bin", order)
    (root / "caches").symlink_to(outside)
    with pytest.raises(BuildFault) as raised:
        check_inside(root / "caches" / "c.bin", order)
    assert raised.value.info.code is ErrorCode.OUTSIDE_ROOTS


@pytest.mark.parametrize("kind", ["a pipe", "a file without end"])
async def test_what_is_put_at_the_manifest_does_not_hold_up_the_supervisor(
    tmp_path: Path, kind: str
) -> None:
    order = build_order(tmp_path)
    Path(order.output).write_bytes(ENGINE)
    if kind == "a pipe":
        os.mkfifo(order.manifest)
    else:
        sparse(Path(order.manifest))
    with anyio.fail_after(5):
        settled = await anyio.to_thread.run_sync(settle_artefact, order, abandon_on_cancel=True)
    assert settled is None


@pytest.mark.tensorrt_rtx
async def test_a_sparse_terabyte_of_a_model_fails_in_bounded_time(
    supervise: Supervise, root: Path
) -> None:
    model = root / "m.onnx"
    sparse(model)
    request = StartRequest(model=str(model), backend=Backend.TENSORRT_RTX)
    async with supervise() as watcher:
        ended = await watcher.end(await watcher.start(request), within_s=30)
    assert ended.state is State.FAILED
    assert ended.error
    assert ended.error.code is ErrorCode.INVALID_MODEL


NASTY = (
    "\x1b[31mred\x1b]0;title\x07\u202egnp.exe\u2066\U000e0041\U000e0042\u200b\r\nIgnore this\x9b1m"
)
LONG = NASTY + "n" * 100_000


@pytest.mark.tensorrt_rtx
@pytest.mark.parametrize("where", ["names", "long names", "operator", "external data"])
async def test_no_text_of_a_model_reaches_a_reader_unclean_or_at_length(
    supervise: Supervise, root: Path, where: str
) -> None:
    model = root / f"m{NASTY}.onnx"
    hostile_model(model, where)
    request = StartRequest(
        model=str(model), backend=Backend.TENSORRT_RTX, label="a \u202elebal\U000e0041"
    )
    async with supervise() as watcher:
        build = await watcher.start(request)
        ended = await watcher.end(build, within_s=60)
        log = await watcher.service.log(build, tail=500)
        listed = await watcher.service.list_builds()
        assert ended.session_id
        session = await watcher.service.session(ended.session_id)
    async with supervise() as watcher:
        relisted = await watcher.service.list_builds()
    assert ended.state is (State.SUCCEEDED if where == "names" else State.FAILED), ended.error
    told = [json.loads(each.model_dump_json()) for each in (ended, log, listed, session, relisted)]
    texts = [text for each in told for text in strings(each)]
    assert any("gnp.exe" in text for text in texts)
    for text in texts:
        assert len(text) <= 2 * MAX_LINE, (len(text), text[:200])
        assert not unclean(text), ascii(text[:200])


@pytest.fixture
def lax_umask() -> Iterator[None]:
    """Take nothing from the modes that files are made with, so that the modes themselves are seen."""
    before = os.umask(0)
    yield
    os.umask(before)


async def held(watcher: Watcher, request: StartRequest) -> str:
    """Start a build and return its id once its worker plays."""
    build = await watcher.start(request)
    snapshot: Snapshot = await watcher.until(build)
    assert not snapshot.ended, snapshot.error
    return build


def is_worker(process: psutil.Process) -> bool:
    return BUILD_TOKEN_ENV.encode() in Path(f"/proc/{process.pid}/environ").read_bytes()


def judged(order: BuildOrder, roots: list[Path]) -> BuildOrder:
    """Make the order's model, and return the order as a supervisor gives it that judged it now."""
    model = Path(order.model)
    model.write_bytes(b"model")
    file, folder = model.stat(), model.parent.stat()
    return order.model_copy(
        update={
            "roots": roots,
            "model_identity": (file.st_dev, file.st_ino),
            "folder_identity": (folder.st_dev, folder.st_ino),
        }
    )


def sparse(path: Path) -> None:
    """Make a file of a terabyte of zeros that takes no space."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def hostile_model(path: Path, where: str) -> None:
    """Save a model with hostile text: one that builds, with an unknown operator, or without weights."""
    shape = [1, 4]
    # TensorRT takes no tensor or layer with a longer name.
    name = LONG[:4000] if where == "names" else LONG
    given = helper.make_tensor_value_info("in" + name, TensorProto.FLOAT, shape)
    taken = helper.make_tensor_value_info("out" + name, TensorProto.FLOAT, shape)
    operator = "Nasty" + LONG if where == "operator" else "Relu"
    nodes = [helper.make_node(operator, [given.name], ["mid" + name], name="node" + name)]
    nodes.append(helper.make_node("Add", ["mid" + name, "weight"], [taken.name], name=NASTY + "2"))
    weight = helper.make_tensor("weight", TensorProto.FLOAT, shape, [1.0] * 4)
    if where == "external data":
        weight.ClearField("float_data")
        weight.data_location = TensorProto.EXTERNAL
        entry = weight.external_data.add()
        entry.key, entry.value = "location", LONG
    graph = helper.make_graph(nodes, "graph" + LONG, [given], [taken], [weight], doc_string=LONG)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], doc_string=LONG)
    path.write_bytes(model.SerializeToString())


def strings(value: object) -> Iterator[str]:
    """Yield every string in parsed JSON, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def unclean(text: str) -> bool:
    """Whether `text` holds a control, format or line-separating character."""
    return any(
        unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"} for character in text
    )
