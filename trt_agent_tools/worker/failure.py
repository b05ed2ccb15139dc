"""Why a build ended without an engine, read from the last lines that the library logged."""

import re

from trt_agent_tools.model.errors import Details, ErrorCode
from trt_agent_tools.worker.faults import BuildFault

_KINDS: list[tuple[re.Pattern[str], ErrorCode, str]] = [
    (
        re.compile(r"no optimization profile", re.IGNORECASE),
        ErrorCode.MISSING_PROFILE,
        "Give options.profiles for every input with dynamic dimensions.",
    ),
    (
        re.compile(
            r"workspace limit|insufficient memory on requested size|insufficient workspace",
            re.IGNORECASE,
        ),
        ErrorCode.OUT_OF_MEMORY,
        'Give the builder more workspace: options {"memory_pool_limits": {"WORKSPACE": "4GiB"}}.',
    ),
    (
        re.compile(r"out of memory|OutOfMemory|bad_alloc|cudaErrorMemoryAllocation", re.IGNORECASE),
        ErrorCode.OUT_OF_MEMORY,
        "Free memory on the device or the host, or build for smaller profiles.",
    ),
    (
        re.compile(r"Error Code 6: API Usage|Unable to load library", re.IGNORECASE),
        ErrorCode.UNSUPPORTED_OPTION,
        "An option was accepted but cannot be built with here; leave it out.",
    ),
]


def build_failure(errors: list[str]) -> BuildFault:
    """Return the fault for a build that returned no engine and was not asked to stop.

    The first error that names a known kind decides; the library's own lines go with it.
    """
    last = errors[-1] if errors else "it logged no error"
    for line in errors:
        for pattern, code, hint in _KINDS:
            if pattern.search(line):
                return BuildFault(
                    code, f"TensorRT ended without an engine: {line}", hint, _details(errors)
                )
    return BuildFault(
        ErrorCode.BUILDER_ERROR,
        f"TensorRT ended without an engine: {last}",
        "See get_log for what came before.",
        _details(errors),
    )


def _details(errors: list[str]) -> Details:
    return {"errors": errors[-10:]}
