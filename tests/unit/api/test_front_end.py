import pytest
from pydantic import ValidationError

from trt_agent_tools.model.request import FrontEnd


@pytest.mark.parametrize(
    "given",
    [
        {"roots": ["models"]},
        {"roots": ["/models", "~/more"]},
        {"allowed_plugins": ["p.so"]},
        {"policy": "policies/ci.toml"},
        {"root": ["/models"]},
    ],
)
def test_a_front_end_says_only_what_means_the_same_in_another_folder(
    given: dict[str, object],
) -> None:
    with pytest.raises(ValidationError):
        FrontEnd.model_validate(given)


def test_a_front_end_may_name_a_policy_or_its_file() -> None:
    assert FrontEnd(policy="ci").policy == "ci"
    assert FrontEnd(policy="/p/ci.toml", roots=["/m"]).roots == ["/m"]
