"""The options that every command shares, from the command line or from the environment."""

import os
import tempfile
from pathlib import Path
from typing import Annotated

import platformdirs
from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.options import Bytes
from trt_agent_tools.supervisor.config import EngineCacheConfig, SupervisorConfig

ENGINE_CACHE = "engines"
"""In the state folder: where engines are kept for reuse, unless another place is given."""

ENV_PREFIX = "TRT_AGENT_TOOLS_"
"""What the name of every setting's environment variable begins with."""


def _split(value: object) -> object:
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split)]
"""Paths; as text they are separated as in PATH."""


def _split_commas(value: object) -> object:
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)]
"""Names; as text they are separated by commas."""


class Settings(BaseSettings):
    """Where a command works and what it allows. What the caller passes wins over the environment."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    state_dir: Path = Field(
        default_factory=lambda: platformdirs.user_state_path("trt-agent-tools", appauthor=False)
    )
    policy: str = Field("default", min_length=1)
    root: Paths = ()
    enable_replay: bool = False
    allow_plugin: Paths = ()
    embedded: bool = False
    engine_cache: Path | None = None
    engine_cache_size: Bytes = 10 * 1024**3
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8765, ge=0, le=65535)
    allow_host: Names = ()
    allow_origin: Names = ()
    oauth_issuer: str | None = None
    oauth_resource: str | None = None
    oauth_scope: str | None = None

    def config(self, *default_roots: Path) -> SupervisorConfig:
        """Return the supervisor's configuration; `default_roots` hold where no root was given."""
        return SupervisorConfig(
            state_dir=_absolute(self.state_dir),
            roots=tuple(dict.fromkeys(_absolute(root) for root in self.root or default_roots)),
            policy=self.policy,
            enable_replay=self.enable_replay,
            allowed_plugins=tuple(_absolute(plugin) for plugin in self.allow_plugin),
            engine_cache=EngineCacheConfig(
                _absolute(self.engine_cache or self.state_dir / ENGINE_CACHE),
                self.engine_cache_size,
            ),
        )


def load_settings(
    *,
    state_dir: Path | None = None,
    policy: str | None = None,
    root: list[Path] | None = None,
    enable_replay: bool | None = None,
    allow_plugin: list[Path] | None = None,
    embedded: bool | None = None,
    engine_cache: Path | None = None,
    engine_cache_size: str | None = None,
    host: str | None = None,
    port: int | None = None,
    allow_host: list[str] | None = None,
    allow_origin: list[str] | None = None,
    oauth_issuer: str | None = None,
    oauth_resource: str | None = None,
    oauth_scope: str | None = None,
) -> Settings:
    """Return the settings; what is None here or an empty list comes from the environment.

    Raises:
        Refusal: a value is not valid; the message names the option and its environment variable.
    """
    given = {
        "state_dir": state_dir,
        "policy": policy,
        "root": root or None,
        "enable_replay": enable_replay,
        "allow_plugin": allow_plugin or None,
        "embedded": embedded,
        "engine_cache": engine_cache,
        "engine_cache_size": engine_cache_size,
        "host": host,
        "port": port,
        "allow_host": allow_host or None,
        "allow_origin": allow_origin or None,
        "oauth_issuer": oauth_issuer,
        "oauth_resource": oauth_resource,
        "oauth_scope": oauth_scope,
    }
    try:
        return Settings.model_validate({k: v for k, v in given.items() if v is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"--{name.replace('_', '-')}: {first['msg']}",
            f"it is also read from the environment variable {ENV_PREFIX}{name.upper()}",
        ) from error


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def make_state_dir(path: Path) -> None:
    """Make the state folder, for this user alone, unless it is there.

    Raises:
        Refusal: it cannot be made or written to.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"the state folder cannot be used: {error}",
            f"give another one with --state-dir or {ENV_PREFIX}STATE_DIR",
        ) from error
