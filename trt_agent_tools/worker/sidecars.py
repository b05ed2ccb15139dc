"""Finds the files that an ONNX model keeps weights in, without loading a weight.

The onnx library would load the whole graph, up to 2 GB, to answer this; so the protobuf is walked
field by field over a memory map.
"""

import errno
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.onnx_fields import TENSOR_EXTERNAL, TENSOR_LOCATION, TENSORS, WAYS
from trt_agent_tools.worker.opened import (
    NoFileError,
    OpenedFile,
    OpenedModel,
    OutsideError,
    unreadable,
)
from trt_agent_tools.worker.process import allow_files
from trt_agent_tools.worker.protobuf import (
    BYTES,
    MAX_BYTES,
    MAX_DEPTH,
    VARINT,
    MalformedError,
    fields,
    varint,
)

_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_EXTERNAL = 1

_MAX_SIDECARS = 10_000
_SEARCHED_BYTES = 64 * 1024
"""A node up to this size is searched for what leads to external data before it is walked."""

# The key under which a tensor says where its data is.
_LOCATION_KEY = b"location"


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The files of a model's external data, each once: those that are there, open, and names of the others."""

    files: list[OpenedFile]
    missing: list[str]


def find_sidecars(model: OpenedModel) -> list[OpenedFile]:
    """Open the files that hold the model's external data, each once, in order of appearance.

    A file that is no protobuf has none: the parser will refuse it.

    Raises:
        BuildFault: as `look_for_sidecars`; MISSING_EXTERNAL_DATA, one of the files is not there.
    """
    found = look_for_sidecars(model)
    missing = found.missing
    if missing:
        raise BuildFault(
            ErrorCode.MISSING_EXTERNAL_DATA,
            f"the model's external data is missing: {', '.join(missing[:5])}"
            + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""),  # noqa: PLR2004
            f"Put the file beside {model.path.name}; it was saved with its weights in files of their own.",
            {"files": missing},
        )
    return found.files


def look_for_sidecars(model: OpenedModel) -> Sidecars:
    """Open the files of the model's external data, in order of appearance; tell which are not there.

    Raises:
        BuildFault: the model or such a file cannot be read, there are too many, or one's name is no text
            or leads outside the model's folder or the roots.
    """
    locations: dict[bytes, None] = {}
    if not 0 < model.file.stamp.bytes <= MAX_BYTES:
        return Sidecars([], [])
    try:
        with model.file.map() as data:
            for location in _locations(data, 0, len(data), "model", 0):
                locations[location] = None
                if len(locations) > _MAX_SIDECARS:
                    raise _too_many(model, _MAX_SIDECARS)
    except MalformedError:
        return Sidecars([], [])
    except OSError as error:
        raise unreadable(model.path, error) from error
    return _open(model, list(locations))


def _too_many(model: OpenedModel, most: int) -> BuildFault:
    return BuildFault(
        ErrorCode.INVALID_MODEL,
        f"{model.path.name} keeps its weights in more than {most} files",
        "Save its external data in one file.",
    )


def _open(model: OpenedModel, locations: list[bytes]) -> Sidecars:
    missing: list[str] = []
    outside: list[str] = []
    files: list[OpenedFile] = []
    allow_files(len(locations))
    for location in locations:
        try:
            text = location.decode()
        except UnicodeDecodeError as error:
            shown = one_line(location.decode("utf-8", "replace"), MAX_NAME)
            raise BuildFault(
                ErrorCode.INVALID_MODEL,
                f"{model.path.name} keeps weights in a file whose name is no text: {shown!r}",
                "Save its external data under a name in UTF-8.",
            ) from error
        path = model.path.parent / text
        relative = Path(text)
        if relative.is_absolute() or ".." in relative.parts:
            outside.append(one_line(text))
            continue
        try:
            files.append(model.open_beside(text))
        except OutsideError:
            outside.append(one_line(text))
        except NoFileError:
            # Whether there is a file outside the roots is not told either.
            (missing if _within(path, model.roots) else outside).append(one_line(text))
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise _too_many(model, len(files)) from error
            raise unreadable(path, error) from error
    if outside:
        raise BuildFault(
            ErrorCode.OUTSIDE_ROOTS,
            f"the model's external data leads outside its folder: {', '.join(outside[:5])}",
            "Keep external data files beside the model, inside the server's roots.",
            {"files": outside},
        )
    return Sidecars(files, missing)


def _within(path: Path, roots: Sequence[Path]) -> bool:
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):
        # A loop of symbolic links, or NUL in the name: it leads nowhere.
        return True
    return any(real.is_relative_to(root) for root in roots)


def _locations(data: mmap.mmap, start: int, end: int, message: str, depth: int) -> Iterator[bytes]:
    if depth > MAX_DEPTH:
        raise MalformedError("nested too deep")
    if message in TENSORS:
        yield from _tensor_locations(data, start, end, message)
        return
    ways = WAYS[message]
    for number, kind, begin, stop in fields(data, start, end):
        inner = ways.get(number) if kind == BYTES else None
        # Nodes are many and hardly ever hold external data: one search skips each of them. A large one
        # holds weights, which the search would read.
        if (
            inner == "node"
            and stop - begin <= _SEARCHED_BYTES
            and data.find(_LOCATION_KEY, begin, stop) < 0
        ):
            continue
        if inner:
            yield from _locations(data, begin, stop, inner, depth + 1)


def _tensor_locations(data: mmap.mmap, start: int, end: int, message: str) -> list[bytes]:
    # A field that occurs twice is merged from both, so another occurrence of the same tensor may say
    # that its data is external. Initializers are a list, where each stands for itself.
    external = message != "initializer"
    found = []
    for number, kind, begin, stop in fields(data, start, end):
        if (number, kind) == (TENSOR_EXTERNAL, BYTES):
            entry = {n: bytes(data[b:s]) for n, k, b, s in fields(data, begin, stop) if k == BYTES}
            if entry.get(_ENTRY_KEY) == _LOCATION_KEY:
                found.append(entry.get(_ENTRY_VALUE, b""))
        elif (number, kind) == (TENSOR_LOCATION, VARINT):
            external |= varint(data, begin, stop)[0] & 0xFFFFFFFF == _EXTERNAL
    return found if external else []
