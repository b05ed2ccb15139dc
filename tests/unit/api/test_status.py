from http import HTTPStatus

from trt_agent_tools.api.status import STATUS
from trt_agent_tools.model.errors import ErrorCode


def test_every_error_code_has_one_http_status_that_tells_failure() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert all(status >= HTTPStatus.BAD_REQUEST for status in STATUS.values())
