"""Whether what is at a path is still what the supervisor judged.

Paths are judged when a build is asked for and used when it runs, maybe hours later. Whoever can write
to the roots can put a link or another folder there in between.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.request import BuildOrder, InspectOrder
from trt_agent_tools.worker.faults import BuildFault


def check_model(order: BuildOrder | InspectOrder) -> None:
    """Refuse a model that leads elsewhere than it did. An order without identity is not checked.

    Raises:
        BuildFault: MODEL_CHANGED, another file is there now; OUTSIDE_ROOTS, it leads out of the roots;
            MODEL_UNREADABLE, there is none any more.
    """
    if order.model_identity is None:
        return
    model = Path(order.model)
    try:
        model.resolve(strict=True)
        status = model.stat()
    except (OSError, RuntimeError) as error:
        raise is_gone(model) from error
    check_inside(model, order)
    if (status.st_dev, status.st_ino) != order.model_identity:
        raise was_replaced(model)


def check_inside(path: Path, order: BuildOrder | InspectOrder) -> None:
    """Refuse a path that leads out of the order's roots by now, whether or not something is there.

    Raises:
        BuildFault: OUTSIDE_ROOTS.
    """
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        real = None
    if real is None or not any(real.is_relative_to(root) for root in map(Path, order.roots)):
        raise leads_out(path)


def is_gone(model: Path) -> BuildFault:
    """Return the fault of a model that is not there any more."""
    return BuildFault(
        ErrorCode.MODEL_UNREADABLE,
        f"{model.name} is not there any more",
        "Keep the model in place until its build has ended.",
    )


def was_replaced(model: Path) -> BuildFault:
    """Return the fault of a model that is another file by now."""
    return BuildFault(
        ErrorCode.MODEL_CHANGED,
        f"{model.name} was replaced after its build was asked for",
        "Build again when nothing writes to it.",
    )


def leads_out(path: Path) -> BuildFault:
    """Return the fault of a path that leads out of the roots by now."""
    return BuildFault(
        ErrorCode.OUTSIDE_ROOTS,
        f"{path.name} leads out of the folders that this server may use by now",
        "Keep files and folders in place until the build has ended.",
    )


class OutputFolder:
    """The output's folder, open: names in it are that folder's whatever its path leads to meanwhile."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self._path = path

    def check(self) -> None:
        """Refuse a folder that is not at its path any more: nobody would find the engine.

        Raises:
            BuildFault: OUTPUT_NOT_WRITABLE.
            OSError: there is nothing at the path.
        """
        if not os.path.samestat(os.fstat(self.descriptor), self._path.stat()):
            raise _moved(self._path)

    def unlink(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return


@contextmanager
def open_output_folder(order: BuildOrder) -> Iterator[OutputFolder]:
    """Open the folder that the order's engine and manifest go to.

    Raises:
        BuildFault: OUTPUT_NOT_WRITABLE, it is another one than was judged, or the order's files are not
            in one folder.
        OSError: it cannot be opened.
    """
    path = Path(order.output).parent
    others = (order.partial_engine, order.manifest, order.partial_manifest)
    if any(Path(other).parent != path for other in others):
        raise BuildFault(
            ErrorCode.OUTPUT_NOT_WRITABLE,
            "the engine, its manifest and their temporary files are not in one folder",
            "Order them into one.",
        )
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if order.folder_identity not in {None, (status.st_dev, status.st_ino)}:
            raise _moved(path)
        yield OutputFolder(descriptor, path)
    finally:
        os.close(descriptor)


def _moved(path: Path) -> BuildFault:
    return BuildFault(
        ErrorCode.OUTPUT_NOT_WRITABLE,
        f"another folder was put at {path} after the build was asked for",
        "Keep the output's folder in place until the build has ended; nothing was written.",
    )
