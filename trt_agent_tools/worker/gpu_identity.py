"""Which GPU a build runs on, asked of the driver: what was measured on it holds for its like alone."""

import ctypes
import re

_NAME_BYTES = 256
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


def gpu_identity() -> str | None:
    """Return the first GPU's name and architecture as a part of a file name: "NVIDIA_H200-sm90".

    None where there is no driver, no GPU, or the driver does not say. No context is made: the GPU's
    memory stays as it is.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    codes = (
        driver.cuInit(ctypes.c_uint(0)),
        # CUDA_VISIBLE_DEVICES shows a worker the device that its build holds, and no other.
        driver.cuDeviceGet(ctypes.byref(device), ctypes.c_int(0)),
        driver.cuDeviceGetName(name, ctypes.c_int(_NAME_BYTES), device),
        driver.cuDeviceGetAttribute(ctypes.byref(major), ctypes.c_int(_CAPABILITY_MAJOR), device),
        driver.cuDeviceGetAttribute(ctypes.byref(minor), ctypes.c_int(_CAPABILITY_MINOR), device),
    )
    if any(codes):
        return None
    return f"{as_name(name.value.decode('ascii', 'replace'))}-sm{major.value}{minor.value}"


def as_name(text: str) -> str:
    """Return `text` with what a file name should not have replaced: "NVIDIA H200" is "NVIDIA_H200"."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_.") or "unknown"
