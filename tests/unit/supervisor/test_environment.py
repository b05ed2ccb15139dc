"""A worker gets what building needs of the server's environment, and no secret."""

import pytest

from trt_agent_tools.supervisor.process.environment import worker_environment


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "SSH_AUTH_SOCK"),
        *("DATABASE_URL", "HTTPS_PROXY", "KUBECONFIG", "", "path"),
    ],
)
def test_a_name_that_building_does_not_need_is_kept_back(name: str) -> None:
    assert worker_environment({name: "value"}) == {}


@pytest.mark.parametrize(
    "name", ["NVIDIA_API_KEY", "CUDA_TOKEN", "NV_PASSWORD", "TRT_LLM_Secret", "LC_ACCESS_KEY"]
)
def test_a_secret_is_kept_back_whatever_its_name_begins_with(name: str) -> None:
    assert worker_environment({name: "value"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "LC_ALL"),
        *("CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX"),
    ],
)
def test_what_building_needs_is_passed_on_as_it_is(name: str) -> None:
    assert worker_environment({name: "a value"}) == {name: "a value"}
