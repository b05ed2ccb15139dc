import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorrt_rtx


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trt_agent_tools", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env={**os.environ, **environment},
    )


def test_doctor_tells_as_json_what_works_and_what_does_not(tmp_path: Path) -> None:
    done = doctor("--json", "--state-dir", str(tmp_path / "state"), CUDA_VISIBLE_DEVICES="")

    report = json.loads(done.stdout)
    backends = {backend["name"]: backend for backend in report["backends"]}
    rtx = backends["tensorrt_rtx"]
    assert (done.returncode, done.stderr) == (0, "")
    assert report["ok"] is True
    assert report["auto"] == "tensorrt_rtx"
    assert rtx["works"] is True
    assert rtx["version"] == report["packages"]["tensorrt-rtx"]
    assert rtx["options"] > 10
    assert rtx["flags"] > 10
    assert Path(rtx["library"]).is_file()
    (device,) = report["devices"]
    assert (device["name"], device["sampled"], device["problem"]) == ("cpu", [], "no GPU")
    assert report["state_dir"] == {"path": str(tmp_path / "state"), "writable": True}
    if not backends["tensorrt"]["works"]:
        assert backends["tensorrt"]["error"]["hint"]


def test_doctor_tells_the_policy_in_use_and_the_known_ones_with_their_files(
    tmp_path: Path,
) -> None:
    own = tmp_path / "config" / "trt-agent-tools" / "policies"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text('description = "of my own"\n')

    done = doctor(
        "--json",
        TRT_AGENT_TOOLS_STATE_DIR=str(tmp_path),
        TRT_AGENT_TOOLS_POLICY="mine",
        XDG_CONFIG_HOME=str(tmp_path / "config"),
    )

    report = json.loads(done.stdout)
    assert report["policy"] == {
        "name": "mine",
        "path": str(own / "mine.toml"),
        "shipped": False,
        "description": "of my own",
    }
    known = {policy["name"]: policy for policy in report["policies"]}
    assert known["default"]["shipped"] is True
    assert Path(known["default"]["path"]).is_file()
    assert known["mine"] == report["policy"]


def test_doctor_with_a_policy_that_is_not_valid_is_status_1_and_says_why(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[rules]\nbuild_tme = '1h'\n")

    done = doctor("--state-dir", str(tmp_path), "--policy", str(bad))

    assert done.returncode == 1
    assert re.search(rf"policy in use +bad \({bad}\)\n +{bad}: line 2: .*build_time", done.stdout)


def test_doctor_changes_nothing(tmp_path: Path) -> None:
    doctor("--state-dir", str(tmp_path / "state"))

    assert list(tmp_path.iterdir()) == []


def test_doctor_prints_one_fact_a_line_without_a_terminal(tmp_path: Path) -> None:
    lines = doctor("--state-dir", str(tmp_path), CUDA_VISIBLE_DEVICES="").stdout.splitlines()

    topics = [line[:18].strip() for line in lines]
    assert topics[:2] == ["python", "platform"]
    assert {"tensorrt-rtx", "with tensorrt_rtx", "auto takes", "device cpu", "GPU use, cpu"} <= set(
        topics
    )
    assert lines[-3:] == [
        f"state folder       {tmp_path} (writable)",
        "supervisor         none answers: a front end starts one",
        "journal            none yet",
    ]


def test_doctor_tells_why_the_state_folder_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = doctor("--json", "--state-dir", str(tmp_path / "file" / "state"))

    folder = json.loads(done.stdout)["state_dir"]
    assert folder["writable"] is False
    assert str(tmp_path / "file") in folder["problem"]


def test_doctor_without_a_working_backend_is_status_1_and_says_why(tmp_path: Path) -> None:
    # Found by Python before the real ones, and broken: as a library for another CUDA would be.
    for name in ("tensorrt", "tensorrt_rtx"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('libcudart is not here')")

    done = doctor("--json", "--state-dir", str(tmp_path), PYTHONPATH=str(tmp_path))

    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["ok"] is False
    for backend in report["backends"]:
        assert backend["works"] is False
        assert "libcudart is not here" in backend["error"]["message"]
