"""Where a command's builds are: with the supervisor of the state folder, or in this process."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from trt_agent_tools.api.attach import attach
from trt_agent_tools.api.embedded import embedded as keep_here
from trt_agent_tools.model.request import FrontEnd
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.policy.files import SUFFIX, load_policy
from trt_agent_tools.supervisor.config import SupervisorConfig


def open_service(
    config: SupervisorConfig, *, embedded: bool
) -> AbstractAsyncContextManager[BuildService]:
    """Return the service to enter.

    Embedded, builds end when the block is left. Otherwise they go on, under the supervisor of the state
    folder; it is started where there is none.

    Raises:
        Refusal: the policy is not valid; on entering, see `attach` and `embedded`.
    """
    if embedded:
        return keep_here(config)
    # Judged here too: the supervisor may run for long already, under another.
    load_policy(config.policy)
    policy = config.policy
    if policy.endswith(SUFFIX):
        policy = str(Path(policy).absolute())
    front_end = FrontEnd(
        roots=[str(root) for root in config.roots],
        policy=policy,
        enable_replay=config.enable_replay,
        allowed_plugins=[str(plugin) for plugin in config.allowed_plugins],
    )
    return attach(config, front_end)
