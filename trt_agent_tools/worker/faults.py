"""How a step of the worker says that the build cannot go on."""

from trt_agent_tools.model.errors import Details, ErrorCode, ErrorInfo


class BuildFault(Exception):  # noqa: N818  (not always an error of ours: often the request's)
    """The build ends here, with an error for the reader."""

    def __init__(
        self, code: ErrorCode, message: str, hint: str, details: Details | None = None
    ) -> None:
        super().__init__(f"{code.value}: {message}")
        self.info = ErrorInfo(code, message, hint, details or {})


class BuildStopped(Exception):  # noqa: N818  (an answer to an order, no error)
    """The worker saw an order to cancel and ends without an engine."""
