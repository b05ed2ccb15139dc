"""`doctor`: what is installed, which backends and devices work, and why others do not."""

import os
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Literal

import anyio
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trt_agent_tools import __version__
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.cli.host_report import (
    JournalReport,
    SupervisorReport,
    find_supervisor,
    look_into_journal,
)
from trt_agent_tools.cli.known import PolicyReport, known_reports, report_on
from trt_agent_tools.model.errors import ErrorInfo, Refusal
from trt_agent_tools.model.events import Ready
from trt_agent_tools.model.request import Backend
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.admission import choose_backend
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import Device, find_devices
from trt_agent_tools.supervisor.gpu import NoGpuSampler, open_gpu_sampler
from trt_agent_tools.supervisor.process.probe import Probe, probe_backend

_PACKAGES = ("mcp", "onnx", "tensorrt-rtx", "tensorrt")
_BACKENDS: tuple[Literal["tensorrt_rtx", "tensorrt"], ...] = ("tensorrt_rtx", "tensorrt")
_PROBE_TIMEOUT_S = 60.0


class BackendReport(BaseModel):
    """A backend: what it is where it works, or why it does not."""

    name: str
    works: bool
    version: str | None = None
    library: str | None = None
    options: int | None = None
    flags: int | None = None
    error: ErrorInfo | None = None


class DeviceReport(BaseModel):
    """A device that builds can be given; `problem` says why what they do on it is not seen."""

    name: str
    description: str
    sampled: list[str] = []
    problem: str | None = None


class FolderReport(BaseModel):
    """The state folder; `problem` says why it cannot be used."""

    path: str
    writable: bool
    problem: str | None = None


class Report(BaseModel):
    """All that `doctor` found. `packages` has None for what is not installed."""

    ok: bool
    python: str
    platform: str
    packages: dict[str, str | None]
    backends: list[BackendReport]
    auto: str | None
    devices: list[DeviceReport]
    policy: PolicyReport
    policies: list[PolicyReport]
    state_dir: FolderReport
    supervisor: SupervisorReport | None
    journal: JournalReport | None


def run_doctor(config: SupervisorConfig, *, as_json: bool) -> ExitCode:
    """Print the report; `FAILED` if no backend works, or the policy in use or the journal is bad."""
    report = anyio.run(examine, config)
    if as_json:
        print(report.model_dump_json(exclude_none=True))
    else:
        _print_table(report)
    return ExitCode.OK if report.ok else ExitCode.FAILED


async def examine(config: SupervisorConfig) -> Report:
    """Look at everything. Each library is loaded in a process of its own that ends again."""
    probes: dict[str, Probe] = {}

    async def probe(backend: Literal["tensorrt_rtx", "tensorrt"]) -> None:
        probes[backend] = await probe_backend(backend, timeout_s=_PROBE_TIMEOUT_S)

    async with anyio.create_task_group() as group:
        for backend in _BACKENDS:
            group.start_soon(probe, backend)
    backends = [_backend(probes[name]) for name in _BACKENDS]
    devices = find_devices()
    policy = report_on(config.policy)
    journal = await look_into_journal(config.state_dir)
    usable = policy.error is None and not (journal and journal.ok is False)
    return Report(
        ok=usable and any(backend.works for backend in backends),
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        packages={"trt-agent-tools": __version__} | {name: _installed(name) for name in _PACKAGES},
        backends=backends,
        auto=_auto(config, devices),
        devices=[_device(device) for device in devices],
        policy=policy,
        policies=known_reports(),
        state_dir=_folder(config.state_dir),
        supervisor=await find_supervisor(config.state_dir),
        journal=journal,
    )


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _backend(probe: Probe) -> BackendReport:
    if probe.ready is None:
        return BackendReport(name=probe.backend, works=False, error=probe.error)
    ready: Ready = probe.ready
    return BackendReport(
        name=probe.backend,
        works=True,
        version=ready.versions.get(probe.backend),
        library=ready.library,
        options=len(ready.capabilities.options),
        flags=len(ready.capabilities.choices.get("flags", [])),
    )


def _auto(config: SupervisorConfig, devices: tuple[Device, ...]) -> str | None:
    try:
        return choose_backend(Backend.AUTO, config, devices)
    except Refusal:
        return None  # its reason is told by the backends' own lines


def _device(device: Device) -> DeviceReport:
    report = DeviceReport(name=device.name, description=device.description)
    sampler = open_gpu_sampler(device.visible)
    if isinstance(sampler, NoGpuSampler):
        return report.model_copy(update={"problem": sampler.reason})
    sample = sampler.sample([os.getpid()])
    sampler.close()
    seen = {
        "use by the build": sample.own_percent,
        "use by all": sample.device_percent,
        "memory of the build": sample.own_memory_bytes,
        "energy": sample.energy_j,
    }
    sampled = [name for name, value in seen.items() if value is not None]
    return report.model_copy(update={"sampled": sampled})


def _folder(path: Path) -> FolderReport:
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        if there == path:
            # Permission bits do not tell of a read-only or full file system.
            with tempfile.TemporaryFile(dir=path):
                pass
        elif not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(f"{there} takes no new folder")
    except OSError as error:
        return FolderReport(path=str(path), writable=False, problem=str(error))
    return FolderReport(path=str(path), writable=True)


def _print_table(report: Report) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        for topic, _, text in _lines(report):
            print(f"{topic:<18} {one_line(text)}")
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for topic, good, text in _lines(report):
        style = {True: "green", False: "red", None: ""}[good]
        table.add_row(Text(topic, style="bold"), Text(one_line(text), style=style))
    console.print(table)


def _lines(report: Report) -> list[tuple[str, bool | None, str]]:
    """Return topic, verdict (None: neither good nor bad) and text of each line."""
    lines: list[tuple[str, bool | None, str]] = [
        ("python", None, report.python),
        ("platform", None, report.platform),
    ]
    lines += [(n, None, version or "not installed") for n, version in report.packages.items()]
    for backend in report.backends:
        topic = f"with {backend.name}"
        if backend.works:
            text = (
                f"works: {backend.version}, {backend.options} options, {backend.flags} flags, "
                f"from {backend.library}"
            )
            lines.append((topic, True, text))
        elif backend.error:
            text = f"{backend.error.message} ({backend.error.code.value})"
            lines.append((topic, False, text))
            if backend.error.hint:
                lines.append(("", None, backend.error.hint))
    lines.append(
        ("auto takes", report.auto is not None, report.auto or "none: nothing is installed")
    )
    for device in report.devices:
        lines.append((f"device {device.name}", True, device.description))
        if device.problem is None:
            text = f"sampled: {', '.join(device.sampled)}" if device.sampled else "nothing is told"
            lines.append((f"GPU use, {device.name}", bool(device.sampled), text))
        else:
            good = None if device.name == "cpu" else False
            lines.append((f"GPU use, {device.name}", good, f"not sampled: {device.problem}"))
    lines.extend(_policy_lines(report))
    folder = report.state_dir
    text = f"{folder.path} (writable)" if folder.writable else f"{folder.path}: {folder.problem}"
    lines.append(("state folder", folder.writable, text))
    lines.extend(_host_lines(report))
    return lines


def _host_lines(report: Report) -> list[tuple[str, bool | None, str]]:
    host, journal = report.supervisor, report.journal
    running = "none answers: a front end starts one"
    if host:
        running = (
            f"process {host.pid}, version {host.version}, builds that wait or run: "
            f"{host.builds_live}, front ends: {host.front_ends}"
        )
    if journal is None:
        told = "none yet"
    else:
        told = f"{journal.bytes / 1e6:.1f} MB"
        if journal.ok is None:
            told += ", not looked into: a supervisor has it open"
        elif journal.ok:
            whole = (
                "read through and sound" if journal.whole else "too large to read all of it here"
            )
            told += f", builds: {journal.builds}, {whole}"
        else:
            told += f": {journal.problem}"
    good = journal.ok if journal else None
    return [("supervisor", None, running), ("journal", good, told)]


def _policy_lines(report: Report) -> list[tuple[str, bool | None, str]]:
    used = report.policy
    path = f"shipped, {used.path}" if used.shipped else used.path
    text = f"{used.name} ({path})" if used.path else used.name
    lines: list[tuple[str, bool | None, str]] = [("policy in use", used.error is None, text)]
    if used.error:
        lines.append(("", False, used.error.message))
        lines.append(("", None, used.error.hint))
    known = [
        policy.name + (" (not valid)" if policy.error else "" if policy.shipped else " (your own)")
        for policy in report.policies
    ]
    lines.append(("policies known", None, ", ".join(known)))
    return lines
