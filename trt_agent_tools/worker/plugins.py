"""Plugin libraries. Whether one may be loaded at all was judged before, by the supervisor."""

from collections.abc import Sequence

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library import Library
from trt_agent_tools.worker.settings import LastLog, Report, said


def load_plugins(
    library: Library, paths: Sequence[str], report: Report, last_log: LastLog | None = None
) -> None:
    """Load each library into the registry that every builder and parser looks plugins up in.

    Called after the builder is made: without a logger the library keeps its reasons to itself.

    Raises:
        BuildFault: INVALID_ARGUMENT, a library does not load or is no plugin library.
    """
    if not paths:
        return
    registry = library.module.get_plugin_registry()
    for path in paths:
        if registry is None or registry.load_library(path) is None:
            words = last_log() if last_log else None
            raise BuildFault(
                ErrorCode.INVALID_ARGUMENT,
                f"the plugin library {one_line(path)} does not load into {library.backend}",
                "It must exist, find its own libraries, be built for this version, and export "
                f"getCreators.{said(words)}",
            )
    report("plugins", list(paths), list(paths))
