"""Real work and real memory on a GPU through the driver alone, for replays: no toolkit is needed."""

import ctypes
import time

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.worker.faults import BuildFault

LAUNCH_NS = 20_000_000
"""How long one launch computes: long enough that launching takes next to no processor time."""

_BLOCKING_SYNC = 0x04
_MULTIPROCESSORS = 16
_THREADS = 256
_OUT_OF_MEMORY = 2

# Every thread computes until its time is over. `ptxas` takes it for every architecture from 7.5 on.
_KERNEL = b"""\
.version 6.0
.target sm_60
.address_size 64
.visible .entry work(.param .u64 nanoseconds, .param .u64 out)
{
    .reg .pred %more;
    .reg .f32 %x;
    .reg .b64 %until, %now, %out;
    ld.param.u64 %until, [nanoseconds];
    mov.u64 %now, %globaltimer;
    add.u64 %until, %until, %now;
    mov.f32 %x, 0f3F800001;
again:
    fma.rn.f32 %x, %x, %x, %x;
    fma.rn.f32 %x, %x, %x, %x;
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %more, %now, %until;
    @%more bra again;
    ld.param.u64 %out, [out];
    cvta.to.global.u64 %out, %out;
    st.global.f32 [%out], %x;
    ret;
}
"""


class Gpu:
    """The first GPU that CUDA shows this process, until the process ends.

    A thread that waits for it sleeps, so that a busy GPU does not make a processor busy too.
    """

    def __init__(self) -> None:
        """Make a context on it.

        Raises:
            BuildFault: there is no driver or no GPU, or the driver does not give it to this process.
        """
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise BuildFault(
                ErrorCode.BACKEND_UNAVAILABLE,
                f"this replay works on a GPU, and there is no NVIDIA driver: {error}",
                "Play it on a machine with an NVIDIA GPU.",
            ) from error
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxSetFlags_v2", device, ctypes.c_uint(_BLOCKING_SYNC))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        count = ctypes.c_int()
        self._call(
            "cuDeviceGetAttribute", ctypes.byref(count), ctypes.c_int(_MULTIPROCESSORS), device
        )
        self._blocks = count.value

    def hold(self, size: int) -> ctypes.c_uint64:
        """Take `size` bytes of its memory for good; return their address.

        Raises:
            BuildFault: it has not so much.
        """
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def compute(self, until: float) -> None:
        """Keep all of its multiprocessors busy until this time of `time.monotonic`.

        Raises:
            BuildFault: the driver reports an error.
        """
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_KERNEL))
        self._call("cuModuleGetFunction", ctypes.byref(kernel), module, ctypes.c_char_p(b"work"))
        nanoseconds = ctypes.c_uint64(LAUNCH_NS)
        out = self.hold(4)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(nanoseconds), ctypes.addressof(out))
        one, none = ctypes.c_uint(1), ctypes.c_void_p()
        while time.monotonic() < until:
            self._call(
                "cuLaunchKernel",
                kernel,
                *(ctypes.c_uint(self._blocks), one, one),
                *(ctypes.c_uint(_THREADS), one, one),
                *(ctypes.c_uint(0), none, arguments, none),
            )
            self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code: int = self._driver[name](*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._driver["cuGetErrorName"](ctypes.c_int(code), ctypes.byref(text))
        said = (text.value or b"an unknown error").decode("ascii", "replace")
        raise BuildFault(
            ErrorCode.OUT_OF_MEMORY if code == _OUT_OF_MEMORY else ErrorCode.BUILDER_ERROR,
            f"{name} failed: {said} ({code})",
            "Play it again when the GPU is free, or on another one.",
        )
