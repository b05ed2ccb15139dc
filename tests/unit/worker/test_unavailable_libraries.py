"""A library that cannot be used is refused with its reason, never with a traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo

if TYPE_CHECKING:
    from tests.unit.worker.conftest import Site

FakeTensorRT = Callable[[str], "Site"]


@pytest.fixture
def module(bare_site: "Site", tmp_path: Path) -> FakeTensorRT:
    """Return a function from source text to a site where it is the module `tensorrt`."""

    def make(source: str) -> "Site":
        (tmp_path / "tensorrt.py").write_text(source)
        return type(bare_site)([tmp_path])

    return make


def unavailable(site: "Site", backend: str = "tensorrt", *hidden: str) -> ErrorInfo:
    fault = site.probe(backend=backend, hidden=hidden).fault
    assert fault is not None
    assert fault.code is ErrorCode.BACKEND_UNAVAILABLE
    return fault


@pytest.mark.parametrize(
    ("backend", "command"),
    [
        ("tensorrt", 'pip install "trt-agent-tools[tensorrt]"'),
        ("tensorrt_rtx", "pip install tensorrt-rtx"),
    ],
)
def test_a_library_that_is_not_installed_is_told_with_the_command_that_installs_it(
    bare_site: "Site", backend: str, command: str
) -> None:
    fault = unavailable(bare_site, backend, backend)
    assert "is not installed" in fault.message
    assert command in fault.hint


@pytest.mark.parametrize("version", ["8.4.1.5", "12.0"])
def test_a_module_without_progress_monitor_is_refused_whatever_its_version(
    module: FakeTensorRT, version: str
) -> None:
    fault = unavailable(
        module(f"__version__ = '{version}'\nclass Builder: ...\nclass IBuilderConfig: ...\n")
    )
    assert f"tensorrt {version} is too old" in fault.message
    assert "IProgressMonitor" in fault.message
    assert "pip install" in fault.hint


def test_tensorrt_before_10_is_too_old_even_with_a_progress_monitor(module: FakeTensorRT) -> None:
    fault = unavailable(
        module(
            "__version__ = '9.3.0'\n"
            "class Builder: ...\n"
            "class IProgressMonitor: ...\n"
            "class IBuilderConfig:\n    progress_monitor = None\n"
        )
    )
    assert "tensorrt 9.3.0 is too old: at least 10 is needed" in fault.message


@pytest.mark.parametrize(
    "raised",
    [
        "ImportError('libnvinfer.so.10: cannot open shared object file')",
        "OSError('libcudart.so.13: cannot open shared object file')",
        "RuntimeError('no CUDA driver')",
        "ModuleNotFoundError('No module named numpy', name='numpy')",
    ],
)
def test_a_module_that_fails_while_it_loads_is_told_with_its_own_words(
    module: FakeTensorRT, raised: str
) -> None:
    fault = unavailable(module(f"raise {raised}\n"))
    assert "is installed but does not load" in fault.message
    assert raised.split("'")[1] in fault.message


def test_a_folder_that_happens_to_be_called_tensorrt_is_not_taken_for_it(
    bare_site: "Site", tmp_path: Path
) -> None:
    (tmp_path / "tensorrt").mkdir()
    fault = unavailable(type(bare_site)([tmp_path]))
    assert "not NVIDIA's" in fault.message
    assert str(tmp_path / "tensorrt") in fault.message
