"""A kept engine is at the output whole, with its manifest, or nothing of it is there."""

import errno
import os
from pathlib import Path

import pytest

from tests.unit.build_orders import ENGINE, OLDER, build_order, files, manifest_for, put_older
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.supervisor.artefact import settle_artefact
from trt_agent_tools.supervisor.file_digest import Interrupt, InterruptedWorkError, Stamp
from trt_agent_tools.supervisor.reuse.cache import EngineCache, Entry
from trt_agent_tools.supervisor.reuse.publish import (
    EntryLostError,
    PublishError,
    manifest_of_reuse,
    publish,
)


class Kept:
    """An engine that an earlier build made, and the folder that another one writes to."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        made_in = folder / "made"
        made_in.mkdir()
        order = build_order(made_in, build_id="b_first")
        self.made = Path(order.output)
        self.made.write_bytes(ENGINE)
        cache = EngineCache(folder / "engines", 1 << 20)
        cache.add("k", manifest_for(ENGINE, order), Stamp.of(self.made.stat()), Interrupt())
        (self.entry,) = cache.entries()

    def order(self, *, overwrite: bool = False) -> BuildOrder:
        status = self.root.stat()
        order = build_order(self.root, overwrite=overwrite)
        return order.model_copy(update={"folder_identity": (status.st_dev, status.st_ino)})

    def publish(self, order: BuildOrder, interrupt: Interrupt | None = None) -> None:
        entry = self.entry
        verified = entry.check(Interrupt())
        assert verified
        publish(entry, verified, order, self.manifest(order, entry), interrupt or Interrupt())

    def manifest(self, order: BuildOrder, entry: Entry) -> Manifest:
        return manifest_of_reuse(entry, order, entry.manifest.model, [])


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path.resolve())


@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_the_engine_and_its_manifest_are_there_and_nothing_else(
    kept: Kept, overwrite: bool
) -> None:
    order = kept.order(overwrite=overwrite)
    if overwrite:
        put_older(order)
    kept.publish(order)
    assert sorted(files(kept.root)) == ["m.engine", "m.engine.json"]
    assert Path(order.output).read_bytes() == ENGINE
    settled = settle_artefact(order)
    assert settled
    assert settled.reused_from == "b_first"


def test_an_output_that_appeared_stays_as_it_is(kept: Kept) -> None:
    order = kept.order()
    put_older(order)
    before = files(kept.root)
    with pytest.raises(PublishError) as caught:
        kept.publish(order)
    assert caught.value.info.code is ErrorCode.OUTPUT_EXISTS
    assert files(kept.root) == before


def test_a_folder_that_was_put_in_place_of_the_output_s_is_not_written_to(kept: Kept) -> None:
    order = kept.order()
    kept.root.rename(kept.root.with_name("moved"))
    kept.root.mkdir()
    with pytest.raises(PublishError) as caught:
        kept.publish(order)
    assert caught.value.info.code is ErrorCode.OUTPUT_NOT_WRITABLE
    assert files(kept.root) == files(kept.root.with_name("moved")) == {}


def test_a_full_disk_is_told_and_nothing_is_left(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = kept.order()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PublishError) as caught:
        kept.publish(order)
    assert caught.value.info.code is ErrorCode.DISK_FULL
    assert files(kept.root) == {}


def test_the_kept_engine_s_own_file_at_the_output_survives_a_failure(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = kept.order(overwrite=True)
    Path(order.output).hardlink_to(kept.made)
    synced = os.fsync

    def fails_for_folders(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir():
            raise OSError(errno.EIO, "Input/output error")
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", fails_for_folders)
    with pytest.raises(PublishError):
        kept.publish(order)
    assert files(kept.root) == {"m.engine": ENGINE}


def test_an_end_that_is_asked_for_in_time_leaves_what_was_there(kept: Kept) -> None:
    order = kept.order(overwrite=True)
    put_older(order)
    before = files(kept.root)
    told = Interrupt()
    told.tell()
    with pytest.raises(InterruptedWorkError):
        kept.publish(order, told)
    assert files(kept.root) == before
    assert before["m.engine"] == OLDER


@pytest.mark.parametrize("copies", [False, True], ids=["link", "copy"])
@pytest.mark.parametrize("what", ["written to", "removed"])
def test_an_engine_that_changed_since_it_was_verified_is_not_put_anywhere(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, what: str, copies: bool
) -> None:
    order = kept.order()
    verified = kept.entry.check(Interrupt())
    assert verified
    if what == "removed":
        kept.entry.engine.unlink()
    else:
        kept.made.write_bytes(ENGINE[::-1])
    if copies:
        monkeypatch.setattr(os, "link", _cross_device)
    with pytest.raises(EntryLostError):
        publish(*(kept.entry, verified, order), kept.manifest(order, kept.entry), Interrupt())
    assert files(kept.root) == {}


def _cross_device(*_: object, **__: object) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")
