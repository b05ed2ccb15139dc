"""Loads the real Python bindings of classic TensorRT without its libraries.

The bindings are small wheels on PyPI; the libraries under them are not. Shared objects that define
the few symbols the bindings need, each returning nothing, let them load: enumerations, classes and
signatures are the real ones then, and nothing can be built.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from pydantic import BaseModel

import trt_agent_tools
from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.events import Capabilities
from trt_agent_tools.worker.opened import OpenedFile, OpenedModel

SOURCES = Path(trt_agent_tools.__file__).parent.parent
PROBE = Path(__file__).with_name("probe_bindings.py")
DOWNLOAD_S = 300
PROBE_S = 60

SYMBOLS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
    "getLogger",
    "getInferLibVersion",
)


@dataclass(frozen=True)
class Bindings:
    """A wheel of bindings, the major version in its libraries' names, and its last Python."""

    package: str
    version: str
    major: int
    last_python: tuple[int, int] = (3, 13)


BINDINGS = {
    "10.0": Bindings("tensorrt_cu12_bindings", "10.0.1", 10, last_python=(3, 12)),
    "10.16": Bindings("tensorrt_cu12_bindings", "10.16.1.11", 10),
    "11.4": Bindings("tensorrt_cu13_bindings", "11.4.0.106", 11),
}


class Probed(BaseModel):
    """What the probe says."""

    fault: ErrorInfo | None = None
    versions: dict[str, str] = {}
    path: str = ""
    capabilities: Capabilities = Capabilities()
    operators: str = ""
    signatures: list[str] = []
    faults: list[ErrorInfo | None] = []
    masks: list[int] = []
    integers: dict[str, dict[str, int]] = {}


@dataclass(frozen=True)
class Site:
    """Where a process finds its modules and shared objects."""

    modules: list[Path]
    libraries: Path | None = None
    version: str = ""

    def probe(
        self, *options: dict[str, object], backend: str = "tensorrt", hidden: tuple[str, ...] = ()
    ) -> Probed:
        """Load the library in a process of its own and judge `options` against it."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, [*self.modules, SOURCES])),
            "LD_LIBRARY_PATH": str(self.libraries or ""),
        }
        order = {"backend": backend, "hidden": hidden, "options": options}
        done = subprocess.run(
            [sys.executable, str(PROBE)],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            env=environment,
            timeout=PROBE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return Probed.model_validate_json(done.stdout)


@pytest.fixture(scope="session")
def site_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Site]:
    """Return a function from a key of `BINDINGS` to a site with those bindings as `tensorrt`."""
    cache = request.config.cache.mkdir("tensorrt_bindings")
    sites: dict[str, Site] = {}

    def site(key: str) -> Site:
        if key not in sites:
            sites[key] = _make_site(BINDINGS[key], cache, tmp_path_factory.mktemp("classic"))
        return sites[key]

    return site


def _make_site(bindings: Bindings, cache: Path, folder: Path) -> Site:
    if sys.version_info[:2] > bindings.last_python:
        last = ".".join(map(str, bindings.last_python))
        pytest.skip(f"TensorRT {bindings.version} has no wheel for a Python after {last}")
    unpacked = _unpack(bindings, cache)
    # The same two lines as in NVIDIA's own `tensorrt` package, which would want the libraries.
    package = folder / "modules" / "tensorrt"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text(
        "from tensorrt_bindings import *\nfrom tensorrt_bindings import __version__\n"
    )
    return Site([package.parent, unpacked], _compile(bindings.major, folder), bindings.version)


def _unpack(bindings: Bindings, cache: Path) -> Path:
    """Return the wheel's content, fetched once for each Python."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    place = cache / f"{bindings.package}-{bindings.version}-{tag}"
    with FileLock(f"{place}.lock"):
        if not place.is_dir():
            fresh = Path(f"{place}.partial")
            shutil.rmtree(fresh, ignore_errors=True)
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                    *("--only-binary=:all:", "--disable-pip-version-check", "-d", str(fresh)),
                    f"{bindings.package}=={bindings.version}",
                ],
                check=True,
                timeout=DOWNLOAD_S,
            )
            [wheel] = fresh.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(fresh)
            wheel.unlink()
            fresh.rename(place)
    return place


def _compile(major: int, folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed for the stub libraries under the bindings"
    source = folder / "stub.c"
    source.write_text("".join(f"void *{symbol}(void) {{ return 0; }}\n" for symbol in SYMBOLS))
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in ("nvinfer", "nvinfer_plugin", "nvonnxparser"):
        file = f"lib{name}.so.{major}"
        subprocess.run(
            [
                *(compiler, "-shared", "-fPIC", f"-Wl,-soname,{file}"),
                *("-o", str(libraries / file), str(source)),
            ],
            check=True,
            timeout=PROBE_S,
        )
    return libraries


@pytest.fixture(scope="session")
def bare_site() -> Site:
    """Return a site that adds nothing to what is installed."""
    return Site([])


Open = Callable[[Path], OpenedFile]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Open files that lie in a root of their own, until the test has ended."""
    with ExitStack() as files:
        yield lambda path: files.enter_context(OpenedModel(path, [path.parent.resolve()])).file
