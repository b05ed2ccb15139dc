from pathlib import Path

import pytest

from trt_agent_tools.cli.settings import load_settings
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.supervisor.config import EngineCacheConfig


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *("STATE_DIR", "POLICY", "ROOT", "ENABLE_REPLAY", "ALLOW_PLUGIN", "EMBEDDED"),
        *("HOST", "PORT", "ALLOW_HOST", "ALLOW_ORIGIN", "ENGINE_CACHE", "ENGINE_CACHE_SIZE"),
    ):
        monkeypatch.delenv(f"TRT_AGENT_TOOLS_{name}", raising=False)


def test_without_anything_said_the_roots_are_the_command_s_and_nothing_risky_is_allowed(
    tmp_path: Path,
) -> None:
    config = load_settings().config(tmp_path)

    assert config.roots == (tmp_path,)
    assert config.state_dir.name == "trt-agent-tools"
    assert config.policy == "default"
    assert config.enable_replay is False
    assert config.allowed_plugins == ()


def test_every_setting_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRT_AGENT_TOOLS_STATE_DIR", "/state")
    monkeypatch.setenv("TRT_AGENT_TOOLS_POLICY", "ci")
    monkeypatch.setenv("TRT_AGENT_TOOLS_ROOT", "/a:/b:")
    monkeypatch.setenv("TRT_AGENT_TOOLS_ENABLE_REPLAY", "1")
    monkeypatch.setenv("TRT_AGENT_TOOLS_ALLOW_PLUGIN", "/p/one.so:/p/two.so")

    config = load_settings().config(Path("/default"))

    assert config.state_dir == Path("/state")
    assert config.policy == "ci"
    assert config.roots == (Path("/a"), Path("/b"))
    assert config.enable_replay is True
    assert config.allowed_plugins == (Path("/p/one.so"), Path("/p/two.so"))


def test_where_to_listen_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load_settings().host, load_settings().port) == ("127.0.0.1", 8765)
    monkeypatch.setenv("TRT_AGENT_TOOLS_HOST", "::1")
    monkeypatch.setenv("TRT_AGENT_TOOLS_PORT", "0")
    monkeypatch.setenv("TRT_AGENT_TOOLS_ALLOW_HOST", "a.example, b.example:8443,")

    settings = load_settings()

    assert (settings.host, settings.port) == ("::1", 0)
    assert settings.allow_host == ("a.example", "b.example:8443")
    monkeypatch.setenv("TRT_AGENT_TOOLS_PORT", "70000")
    with pytest.raises(Refusal, match="--port"):
        load_settings()


def test_an_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRT_AGENT_TOOLS_STATE_DIR", "/from/environment")
    monkeypatch.setenv("TRT_AGENT_TOOLS_POLICY", "ci")
    monkeypatch.setenv("TRT_AGENT_TOOLS_ROOT", "/from/environment")
    monkeypatch.setenv("TRT_AGENT_TOOLS_ALLOW_PLUGIN", "/from/environment.so")

    config = load_settings(
        state_dir=Path("/given"),
        policy="overnight",
        root=[Path("/given")],
        allow_plugin=[Path("/given.so")],
    ).config()

    assert config.state_dir == Path("/given")
    assert config.policy == "overnight"
    assert config.roots == (Path("/given"),)
    assert config.allowed_plugins == (Path("/given.so"),)


def test_builds_are_left_to_a_supervisor_unless_embedded_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert load_settings().embedded is False
    assert load_settings(embedded=True).embedded is True
    monkeypatch.setenv("TRT_AGENT_TOOLS_EMBEDDED", "1")
    assert load_settings().embedded is True
    assert load_settings(embedded=False).embedded is False


def test_relative_paths_and_the_home_folder_become_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")

    config = load_settings(state_dir=Path("~/state"), root=[Path("models")]).config()

    assert config.state_dir == Path("/home/someone/state")
    assert config.roots == (tmp_path / "models",)


def test_a_root_named_twice_counts_once() -> None:
    assert load_settings(root=[Path("/a"), Path("/a")]).config().roots == (Path("/a"),)


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRT_AGENT_TOOLS_ROOT", "")
    monkeypatch.setenv("TRT_AGENT_TOOLS_POLICY", "")

    config = load_settings().config(Path("/default"))

    assert (config.roots, config.policy) == ((Path("/default"),), "default")


def test_a_wrong_value_in_the_environment_is_refused_and_the_variable_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRT_AGENT_TOOLS_ENABLE_REPLAY", "perhaps")

    with pytest.raises(Refusal) as refused:
        load_settings()

    assert refused.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert "--enable-replay" in refused.value.info.message
    assert "TRT_AGENT_TOOLS_ENABLE_REPLAY" in refused.value.info.hint


def test_engines_are_kept_in_the_state_folder_unless_another_place_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = load_settings(state_dir=tmp_path).config().engine_cache
    assert usual == EngineCacheConfig(tmp_path / "engines", 10 * 2**30)
    monkeypatch.setenv("TRT_AGENT_TOOLS_ENGINE_CACHE", str(tmp_path / "shared"))
    monkeypatch.setenv("TRT_AGENT_TOOLS_ENGINE_CACHE_SIZE", "500MiB")
    given = load_settings(state_dir=tmp_path).config().engine_cache
    assert given == EngineCacheConfig(tmp_path / "shared", 500 * 2**20)
