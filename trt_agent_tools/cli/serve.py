"""`serve`: MCP over standard input and output, or a supervisor with MCP and the API on TCP."""

# What it does is imported when it is called, so that --help and serve start fast; the arguments of
# commands are typer's.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import Annotated

import typer

from trt_agent_tools.cli.command import exit_with
from trt_agent_tools.cli.options import (
    ENV,
    AllowPlugins,
    Embedded,
    EnableReplay,
    EngineCache,
    EngineCacheSize,
    Policy,
    Roots,
    StateDir,
)

_HTTP = "HTTP"


def serve(
    embedded: Embedded = None,
    http: Annotated[
        bool,
        typer.Option(
            "--http",
            help="Serve MCP at /mcp and the API on TCP instead, as the supervisor of the state folder, "
            "until SIGTERM or Ctrl-C. Builds end with it.",
            rich_help_panel=_HTTP,
        ),
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(
            help=f"The address to listen on. Default: 127.0.0.1. {ENV}HOST.",
            show_default=False,
            rich_help_panel=_HTTP,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help=f"The port; 0 is any that is free. Default: 8765. {ENV}PORT.",
            show_default=False,
            rich_help_panel=_HTTP,
        ),
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth",
            help="Let everybody in who reaches a loopback address: every user of this host. Without it "
            "callers show tokens, see `token add`.",
            rich_help_panel=_HTTP,
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which callers may reach the server, beside its address and localhost; may "
            f"repeat. {ENV}ALLOW_HOST, separated by commas.",
            show_default=False,
            rich_help_panel=_HTTP,
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="An origin whose web pages may use the server, such as https://builds.example.com; "
            f"may repeat. {ENV}ALLOW_ORIGIN, likewise.",
            show_default=False,
            rich_help_panel=_HTTP,
        ),
    ] = None,
    oauth_issuer: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"Take access tokens of this OAuth issuer too. {ENV}OAUTH_ISSUER.",
            show_default=False,
            rich_help_panel=_HTTP,
        ),
    ] = None,
    oauth_resource: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="This server's own URL, as such tokens name it, for example "
            f"https://builds.example.com/mcp. {ENV}OAUTH_RESOURCE.",
            show_default=False,
            rich_help_panel=_HTTP,
        ),
    ] = None,
    oauth_scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE",
            help=f"The scope that such tokens must have. {ENV}OAUTH_SCOPE.",
            show_default=False,
            rich_help_panel=_HTTP,
        ),
    ] = None,
    state_dir: StateDir = None,
    policy: Policy = None,
    root: Roots = None,
    enable_replay: EnableReplay = None,
    allow_plugin: AllowPlugins = None,
    engine_cache: EngineCache = None,
    engine_cache_size: EngineCacheSize = None,
) -> None:
    """Serve MCP over standard input and output, until standard input ends.

    Builds go on after that, under their policy, and the next server or command finds them; with
    --embedded they end. With --http serve MCP and the API on TCP instead.
    """

    def run() -> int:
        from trt_agent_tools.cli.settings import load_settings, make_state_dir

        settings = load_settings(
            state_dir=state_dir,
            policy=policy,
            root=root,
            enable_replay=enable_replay,
            allow_plugin=allow_plugin,
            embedded=embedded,
            engine_cache=engine_cache,
            engine_cache_size=engine_cache_size,
            host=host,
            port=port,
            allow_host=allow_host,
            allow_origin=allow_origin,
            oauth_issuer=oauth_issuer,
            oauth_resource=oauth_resource,
            oauth_scope=oauth_scope,
        )
        config = settings.config(Path.cwd())
        make_state_dir(config.state_dir)
        if http:
            from trt_agent_tools.cli.serve_http import serve_http

            return serve_http(settings, config, no_auth=no_auth)
        _check_http_only(
            no_auth, host, port, allow_host, allow_origin, oauth_issuer, oauth_resource, oauth_scope
        )
        from trt_agent_tools.cli.service import open_service
        from trt_agent_tools.mcp_server.stdio import serve_stdio

        return serve_stdio(lambda: open_service(config, embedded=settings.embedded))

    exit_with(run)


def _check_http_only(*given: object) -> None:
    """Refuse options of --http without it: whoever gave them believes that they do something."""
    from trt_agent_tools.model.errors import ErrorCode, Refusal

    if any(given):
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            "an option for HTTP was given without --http",
            "Add --http, or leave out --host, --port, --no-auth, --allow-... and --oauth-...",
        )
