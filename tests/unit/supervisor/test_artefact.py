"""Whenever a worker is killed, its output is settled as a whole or as nothing; older work stays."""

import hashlib
from pathlib import Path

import pytest

from tests.unit.build_orders import (
    ENGINE,
    FIRST_COMPLETE,
    OLDER,
    STEPS,
    build_order,
    files,
    manifest_text,
    put_older,
    work_until,
)
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.supervisor.artefact import Artefact, settle_artefact

KILLS = pytest.mark.parametrize(
    "steps", range(len(STEPS) + 1), ids=["nothing", *(name for name, _ in STEPS)]
)


def whole(order: BuildOrder) -> Artefact:
    digest = hashlib.sha256(ENGINE).hexdigest()
    return Artefact(order.output, len(ENGINE), digest, order.manifest)


@KILLS
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_a_killed_worker_leaves_a_whole_result_or_nothing(
    tmp_path: Path, steps: int, overwrite: bool
) -> None:
    order = build_order(tmp_path, overwrite=overwrite)
    work_until(order, steps)
    settled = settle_artefact(order)
    if steps >= FIRST_COMPLETE:
        assert settled == whole(order)
        left = files(tmp_path)
        assert left.pop("m.engine") == ENGINE
        assert Manifest.model_validate_json(left.pop("m.engine.json")).build_id == "b_new"
        assert left == {}
    else:
        assert settled is None
        assert files(tmp_path) == {}


@KILLS
def test_an_older_engine_stays_whole_until_a_new_one_is(tmp_path: Path, steps: int) -> None:
    order = build_order(tmp_path, overwrite=True)
    put_older(order)
    before = files(tmp_path)
    work_until(order, steps)
    settled = settle_artefact(order)
    after = files(tmp_path)
    if steps >= FIRST_COMPLETE:
        assert settled == whole(order)
        assert after == {
            "m.engine": ENGINE,
            "m.engine.json": manifest_text(ENGINE, order).encode(),
        }
    else:
        assert settled is None
        assert after == before


@KILLS
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_settling_again_changes_nothing_and_says_the_same(
    tmp_path: Path, steps: int, overwrite: bool
) -> None:
    order = build_order(tmp_path, overwrite=overwrite)
    work_until(order, steps)
    first, left = settle_artefact(order), files(tmp_path)
    assert settle_artefact(order) == first
    assert files(tmp_path) == left


@pytest.mark.parametrize("steps", range(FIRST_COMPLETE))
def test_an_engine_that_somebody_else_put_there_meanwhile_is_left_alone(
    tmp_path: Path, steps: int
) -> None:
    order = build_order(tmp_path)
    work_until(order, steps)
    Path(order.output).write_bytes(OLDER)
    assert settle_artefact(order) is None
    assert files(tmp_path) == {"m.engine": OLDER}


def test_an_engine_in_place_without_any_manifest_of_it_is_removed(tmp_path: Path) -> None:
    order = build_order(tmp_path)
    work_until(order, FIRST_COMPLETE)
    Path(order.partial_manifest).unlink()
    assert settle_artefact(order) is None
    assert files(tmp_path) == {}


@pytest.mark.parametrize("damage", [b"", ENGINE[:-1], ENGINE[:-1] + b"!", ENGINE + b"!"])
def test_an_engine_that_is_not_the_manifests_is_no_result(tmp_path: Path, damage: bytes) -> None:
    order = build_order(tmp_path)
    work_until(order, len(STEPS))
    Path(order.output).write_bytes(damage)
    assert settle_artefact(order) is None


@pytest.mark.parametrize("text", ["", "{", "null", "\xff", '{"build_id": "b_new"}'])
def test_a_manifest_that_cannot_be_read_is_no_result(tmp_path: Path, text: str) -> None:
    order = build_order(tmp_path)
    Path(order.output).write_bytes(ENGINE)
    Path(order.manifest).write_text(text, "latin-1")
    assert settle_artefact(order) is None
    assert Path(order.output).read_bytes() == ENGINE


def test_the_whole_result_of_another_build_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    put_older(build_order(tmp_path))
    before = files(tmp_path)
    assert settle_artefact(build_order(tmp_path)) is None
    assert files(tmp_path) == before


def test_what_cannot_be_settled_is_told_and_half_written_files_still_go(tmp_path: Path) -> None:
    order = build_order(tmp_path)
    work_until(order, 2)
    Path(order.manifest).mkdir()
    with pytest.raises(OSError, match="directory"):
        settle_artefact(order)
    assert {path.name for path in tmp_path.iterdir()} == {"m.engine.json"}
