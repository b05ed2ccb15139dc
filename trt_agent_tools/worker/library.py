"""Loads TensorRT or TensorRT-RTX and says what was loaded."""

import importlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import Capabilities
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker import features
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library_types import LibraryModule, LibraryName

_OLDEST: dict[LibraryName, tuple[int, ...]] = {"tensorrt": (10,), "tensorrt_rtx": (1, 4)}
_INSTALL: dict[LibraryName, str] = {
    "tensorrt": 'pip install "trt-agent-tools[tensorrt]"',
    "tensorrt_rtx": "pip install tensorrt-rtx",
}
_NATIVE: dict[LibraryName, re.Pattern[str]] = {
    "tensorrt": re.compile(r"libnvinfer\.so(\.\d+)*"),
    "tensorrt_rtx": re.compile(r"libtensorrt_rtx\.so(\.\d+)*"),
}


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library.

    `versions` maps `tensorrt` or `tensorrt_rtx`, `onnx_parser` (where the library tells it) and
    `python` to their versions. `path` is the native library that the process really mapped.
    """

    module: LibraryModule
    backend: LibraryName
    versions: dict[str, str]
    path: str

    def capabilities(self) -> Capabilities:
        """Return what the library takes, detected on the library itself."""
        return features.detect(self.module, self.backend)


def load_library(backend: LibraryName) -> Library:
    """Import the module of `backend`.

    Raises:
        BuildFault: BACKEND_UNAVAILABLE; it is not installed, does not load, is something else by
            the same name, or is older than TensorRT 10 or TensorRT-RTX 1.4.
    """
    module = _import(backend)
    version: object = getattr(module, "__version__", None)
    if not isinstance(version, str) or not hasattr(module, "Builder"):
        raise _unavailable(
            backend,
            f"the module {backend!r} at {_origin(module)} is not NVIDIA's",
            "Rename that folder or file, or take it off PYTHONPATH.",
        )
    _judge_age(backend, module, version)
    versions = {backend: version, "python": platform.python_version()}
    parser = _parser_version(module)
    if parser:
        versions["onnx_parser"] = parser
    return Library(module, backend, versions, _mapped(_NATIVE[backend]) or _origin(module))


def _import(backend: LibraryName) -> LibraryModule:
    try:
        return cast("LibraryModule", importlib.import_module(backend))
    except ModuleNotFoundError as error:
        if error.name == backend:
            raise _unavailable(
                backend,
                f"{backend} is not installed for Python {platform.python_version()}",
                f"Install it: {_INSTALL[backend]}",
            ) from error
        raise _broken(backend, error) from error
    except Exception as error:  # what a foreign package raises is its own choice
        raise _broken(backend, error) from error


def _judge_age(backend: LibraryName, module: LibraryModule, version: str) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version))
    oldest = _OLDEST[backend]
    if numbers[: len(oldest)] >= oldest and features.can_watch(module):
        return
    why = (
        f"at least {'.'.join(map(str, oldest))} is needed"
        if features.can_watch(module)
        else "it has no IProgressMonitor: it can neither tell its progress nor be asked to stop"
    )
    raise _unavailable(
        backend,
        f"{backend} {one_line(version, 40)} is too old: {why}",
        f"Install a newer one: {_INSTALL[backend]}",
    )


def _broken(backend: LibraryName, error: Exception) -> BuildFault:
    reason = one_line(f"{type(error).__name__}: {error}", 500)
    return _unavailable(
        backend,
        f"{backend} is installed but does not load: {reason}",
        "A shared library that it names must be on the loader's path (LD_LIBRARY_PATH), or install "
        f"it again with its libraries: {_INSTALL[backend]}",
    )


def _unavailable(backend: LibraryName, message: str, hint: str) -> BuildFault:
    return BuildFault(ErrorCode.BACKEND_UNAVAILABLE, message, hint, {"backend": backend})


def _origin(module: LibraryModule) -> str:
    """Return where Python found the module; a folder without code has no file, only paths."""
    file: str | None = getattr(module, "__file__", None)
    paths: list[str] = list(getattr(module, "__path__", []))
    return file or (paths[0] if paths else "an unknown place")


def _parser_version(module: LibraryModule) -> str | None:
    if not hasattr(module, "get_nv_onnx_parser_version"):
        return None
    # As NvOnnxParser.h composes it: major * 10000 + minor * 100 + patch.
    number = module.get_nv_onnx_parser_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number > 0 else None


def _mapped(native: re.Pattern[str]) -> str | None:
    """Return the file mapped into this process whose name is `native`; None where none is told."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        # The sixth field is the path; anonymous memory has none.
        if len(fields) > 5 and native.fullmatch(Path(fields[5]).name):  # noqa: PLR2004
            return fields[5]
    return None
