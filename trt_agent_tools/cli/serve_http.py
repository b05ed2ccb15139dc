"""`serve --http`: who is let in, and the server in the foreground."""

import sys

from trt_agent_tools import __version__
from trt_agent_tools.api.gate import Admission
from trt_agent_tools.api.supervise import ALREADY_RUNNING, serve_tcp
from trt_agent_tools.api.tcp import TcpConfig
from trt_agent_tools.api.tokens import Tokens, TokensError, unusable
from trt_agent_tools.cli.settings import Settings
from trt_agent_tools.mcp_server.http import PATH, open_mcp
from trt_agent_tools.mcp_server.oauth import OAuth
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.supervisor.config import SupervisorConfig


def serve_http(settings: Settings, config: SupervisorConfig, *, no_auth: bool) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status.

    Raises:
        Refusal: nobody could be let in, the address cannot be used, or another supervisor holds the
            state folder.
    """
    oauth = _oauth(settings)
    if no_auth and oauth:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            "--no-auth lets everybody in, and --oauth-issuer says who is to be",
            "Give one of them.",
        )
    tcp = TcpConfig(
        host=settings.host,
        port=settings.port,
        admission=Admission(None) if no_auth else _admission(Tokens(config.state_dir), oauth),
        open_mcp=open_mcp,
        mcp_path=PATH,
        told=_tell,
        open_pages=oauth.open_pages if oauth else {},
        allow_hosts=settings.allow_host,
        allow_origins=settings.allow_origin,
    )
    try:
        status = serve_tcp(config, tcp)
    except OSError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"the state folder cannot be used: {error}",
            "Clear what is in the way, or give another one with --state-dir.",
        ) from error
    if status == ALREADY_RUNNING:
        raise Refusal(
            ErrorCode.SUPERVISOR_RUNNING,
            f"another supervisor holds {config.state_dir}",
            "`trt-agent-tools stop` ends it once its builds have ended; or give another --state-dir.",
            {"state_dir": str(config.state_dir)},
        )
    return status


def _oauth(settings: Settings) -> OAuth | None:
    given = (settings.oauth_issuer, settings.oauth_resource, settings.oauth_scope)
    return OAuth(*given) if any(given) else None


def _admission(tokens: Tokens, oauth: OAuth | None) -> Admission:
    try:
        known = tokens.all()
    except TokensError as error:
        raise unusable(error) from error
    if oauth:
        return Admission((tokens, oauth), oauth.metadata_url, oauth.scope)
    if not known:
        raise Refusal(
            ErrorCode.UNAUTHENTICATED,
            "no token has been made, so nobody could be let in",
            "Make one with: trt-agent-tools token add NAME. Or give --no-auth to let in every user of "
            "this host, or --oauth-issuer.",
        )
    return Admission((tokens,))


def _tell(url: str) -> None:
    print(
        f"trt-agent-tools {__version__} listens on {url} (MCP at {url}{PATH}, API at {url}/v1)",
        file=sys.stderr,
        flush=True,
    )
