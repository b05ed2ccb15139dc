"""Makes a build of a request that was admitted: its id, its folder, its order for the worker."""

import secrets
from datetime import datetime, timezone

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import PROTOCOL
from trt_agent_tools.model.request import BuildOrder, StartRequest
from trt_agent_tools.policy.policy import Mode, Policy
from trt_agent_tools.progress.view import BuildFacts
from trt_agent_tools.supervisor.admission import Admitted
from trt_agent_tools.supervisor.build import Build, Durably
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.documents import RECORD_NAME
from trt_agent_tools.supervisor.observer import Observers
from trt_agent_tools.supervisor.sessions import OpenSession

HARD_MEMORY = 1.25
"""Times the policy's host_memory: room between being found out by the rule and being stopped."""


def make_build(
    request: StartRequest,
    admitted: Admitted,
    policy: Policy,
    session: OpenSession,
    config: SupervisorConfig,
    chronicle: Durably,
    observers: Observers,
) -> Build:
    """Return the build, accepted now, with a folder of its own under the state folder.

    Raises:
        Refusal: the folder cannot be made.
    """
    build_id = f"b_{secrets.token_hex(8)}"
    folder = config.state_dir / "builds" / build_id
    output = admitted.output
    hidden = output.with_name(f".{output.name}.{build_id}")
    order = BuildOrder(
        protocol=PROTOCOL,
        build_id=build_id,
        backend=admitted.backend,
        model=str(admitted.model),
        output=str(output),
        partial_engine=f"{hidden}.partial",
        manifest=str(admitted.manifest),
        partial_manifest=f"{hidden}.json.partial",
        roots=[str(root) for root in config.roots],
        options=admitted.options,
        record=str(folder / RECORD_NAME),
        policy=policy.name,
        label=request.label,
        memory_limit_bytes=_memory_limit(policy),
        model_identity=admitted.model_identity,
        folder_identity=admitted.folder_identity,
    )
    facts = BuildFacts(
        build_id=build_id,
        label=request.label,
        policy=policy.name,
        backend=admitted.backend,
        model=str(admitted.model),
        output=str(output),
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        session_id=session.session_id,
    )
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise Refusal(
            ErrorCode.JOURNAL_UNAVAILABLE,
            f"the state folder {config.state_dir} takes no new build: {error.strerror}",
            "Check its disk and permissions, or give another one with --state-dir.",
        ) from error
    return Build(
        facts=facts,
        request=request,
        order=order,
        policy=policy,
        session=session,
        folder=folder,
        chronicle=chronicle,
        observers=observers,
    )


def _memory_limit(policy: Policy) -> int | None:
    """Return the bytes at which allocations fail: the rule itself has the first word."""
    rule = policy.rules.host_memory
    if rule is None or rule.mode is not Mode.ENFORCE:
        return None
    return round(rule.limit * HARD_MEMORY)
