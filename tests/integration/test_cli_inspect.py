"""`trt-agent-tools inspect` tells a person what a model is, and what a build of it would lack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.onnx_files import write_dynamic, write_external
from trt_agent_tools.model.inspection import Inspection

pytestmark = pytest.mark.tensorrt_rtx

LONGEST_S = 60


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trt_agent_tools", *arguments, "--state-dir", str(folder / "state")],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        cwd=folder,
        env=os.environ,
    )


def test_what_is_missing_is_told_as_arguments_of_build(tmp_path: Path, nothing_left: None) -> None:
    write_dynamic(tmp_path / "m.onnx", unsupported=True)
    done = command(tmp_path, "inspect", "m.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "input       x  float32[batch, 3, height, width]" in lines
    assert "unsupported Unique (by tensorrt_rtx)" in lines
    [needs] = [line for line in lines if line.startswith("needs")]
    profile = needs.split("'")[1]
    again = command(tmp_path, "inspect", "m.onnx", "--profile", profile)
    assert "needs" not in again.stdout


def test_with_json_it_is_the_whole_answer(tmp_path: Path, nothing_left: None) -> None:
    sidecar = write_external(tmp_path / "m.onnx", 16)
    done = command(tmp_path, "inspect", "m.onnx", "--json")
    found = Inspection.model_validate_json(done.stdout)
    assert [each.path for each in found.sidecars] == [sidecar.name]
    assert found.sha256


def test_what_is_no_model_is_wrong_usage_and_says_why(tmp_path: Path, nothing_left: None) -> None:
    (tmp_path / "m.onnx").write_text("no model")
    done = command(tmp_path, "inspect", "m.onnx")
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid_model" in done.stderr
