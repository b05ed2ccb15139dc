"""Policy files: the shipped ones are valid, a wrong one is refused by file, line and key."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.policy.files import (
    MAX_FILE_BYTES,
    known_policies,
    load_named_policy,
    load_policy,
    shipped_folder,
    user_policies_folder,
)
from trt_agent_tools.policy.policy import Policy

SHIPPED = [path.stem for path in sorted(shipped_folder().glob("*.toml"))]


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's own folder of policies, which is empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = user_policies_folder()
    assert folder.is_relative_to(tmp_path)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def refusal(name: str | Path, load: Callable[[str], Policy] = load_policy) -> ErrorInfo:
    with pytest.raises(Refusal) as refused:
        load(str(name))
    assert refused.value.info.code is ErrorCode.UNKNOWN_POLICY
    assert refused.value.info.hint
    return refused.value.info


def test_there_is_a_default_policy() -> None:
    assert "default" in SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_is_valid_and_says_what_it_is_for(name: str) -> None:
    policy = load_named_policy(name)
    assert policy.name == name
    assert policy.description
    assert load_policy(name) == policy
    assert load_policy(str(shipped_folder() / f"{name}.toml")) == policy


def test_a_users_own_policy_hides_the_shipped_one_of_its_name(own: Path) -> None:
    (own / "default.toml").write_text('description = "mine"\n')
    (own / "night.toml").write_text('description = "too"\n')
    assert load_named_policy("default").description == "mine"
    assert load_named_policy("night").description == "too"
    shipped = {policy.name: policy.shipped for policy in known_policies()}
    assert shipped == {**dict.fromkeys(SHIPPED, True), "default": False, "night": False}


def test_a_file_is_named_after_itself(file: Path) -> None:
    file.write_text('description = "quick"\nescalation = {cancel_grace = "250ms"}\n')
    policy = load_policy(str(file))
    assert policy.name == "mine"
    assert policy.escalation.cancel_grace == 0.25


@pytest.mark.parametrize(
    "name", ["none", "", "Default", "default ", "../default", "/etc/passwd", "a\0b", "x" * 5000]
)
def test_an_unknown_name_is_refused_with_the_valid_ones(name: str) -> None:
    info = refusal(name)
    assert info.details["valid"] == SHIPPED
    assert len(info.message) < 200


def test_a_caller_names_no_file(file: Path) -> None:
    file.write_text("")
    assert load_policy(str(file)).name == "mine"
    for path in (str(file), "default.toml", "../policies/default"):
        refusal(path, load_named_policy)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[escalation]\ncancel_grace = "soon"', "escalation.cancel_grace"),
        ("[escalation]\ncancel_grace = -1", "escalation.cancel_grace"),
        ("[escalation]\ncancel_grace = inf", "escalation.cancel_grace"),
        ("[escalation]\ncancel_grace = nan", "escalation.cancel_grace"),
        (f"[escalation]\ncancel_grace = {'9' * 400}", "escalation.cancel_grace"),
        ("[escalation]\nterminate_grace = true", "escalation.terminate_grace"),
        ("[escalation]\ncancle_grace = 5", "escalation.cancle_grace"),
        ("\nescalation = 5", "escalation"),
        ("\ncolour = 1", "colour"),
        ("\nname = 5", "name"),
    ],
)
def test_a_wrong_value_is_refused_by_file_line_and_key(file: Path, text: str, key: str) -> None:
    file.write_text(text)
    info = refusal(file)
    assert "mine.toml" in info.message
    assert key in info.message
    assert info.details["line"] == 2


@pytest.mark.parametrize(
    "content",
    [
        b"[escalation",
        b"a = 1\na = 2",
        b"\xff\xfe",
        b"a = \x00",
        b"a = " + b"[" * 100_000,
        b"#" * (MAX_FILE_BYTES + 1),
    ],
    ids=["half", "twice", "no UTF-8", "NUL", "deep", "huge"],
)
def test_what_is_no_policy_file_is_refused_not_crashed_on(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert "mine.toml" in refusal(file).message


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_policy_or_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        load_policy(str(file))
    except Refusal:
        refusal(file).message.encode()


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    for name in ("none.toml", "folder.toml", "a\0b.toml", "x" * 300 + ".toml"):
        assert "cannot be read" in refusal(tmp_path / name).message
