"""The environment of a worker: what building needs, and none of the operator's secrets.

A worker parses files that nobody vouches for. So names are let through that are known to be needed, not
kept out that are known to be secret.
"""

from collections.abc import Mapping

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "XDG_CACHE_HOME"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE"),
        *("PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
        *("TRT_AGENT_TOOLS_TEST_RUN",),
    }
)
_PREFIXES = (
    *("LC_", "CUDA_", "CUDNN_", "NVIDIA_", "NV_", "TRT_LLM_", "TENSORRT_"),
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "MALLOC_", "GLIBC_TUNABLES"),
)
_SECRET_WORDS = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
)


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of `environment` that a worker gets.

    A name that looks like a secret's is left out even where its beginning would let it through.
    """
    return {name: value for name, value in environment.items() if _passes(name)}


def _passes(name: str) -> bool:
    if any(word in name.upper() for word in _SECRET_WORDS):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)
