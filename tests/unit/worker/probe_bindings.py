"""Run in a process of its own: loads a library and judges options against it.

stdin: {"backend": ..., "hidden": [module, ...], "options": [build options, ...]}; stdout: one object.
"""

import json
import sys
from dataclasses import asdict

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.findings import Operator
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library import load_library
from trt_agent_tools.worker.operators import UnknownError, not_taken
from trt_agent_tools.worker.options import check_options, network_flags_mask


def main() -> None:
    order = json.load(sys.stdin)
    # What is None here, Python's import system reports as not installed.
    sys.modules.update(dict.fromkeys(order["hidden"]))
    try:
        library = load_library(order["backend"])
    except BuildFault as fault:
        json.dump({"fault": asdict(fault.info)}, sys.stdout)
        return
    capabilities = library.capabilities()
    faults: list[ErrorInfo | None] = []
    masks: list[int] = []
    for given in order["options"]:
        options = BuildOptions(**given)
        try:
            check_options(capabilities, options)
            masks.append(network_flags_mask(library, options.network_flags))
            faults.append(None)
        except BuildFault as fault:
            faults.append(fault.info)
    members = {
        enum: {
            name: int(member) for name, member in getattr(library.module, enum).__members__.items()
        }
        for enum in ("BuilderFlag", "TacticSource", "NetworkDefinitionCreationFlag")
    }
    try:
        not_taken(library, [Operator("", "Relu")], [], lambda *_: None)
        operators = "told"
    except UnknownError as unknown:
        operators = str(unknown)
    config = vars(library.module)["IBuilderConfig"]
    cache = vars(library.module)["ITimingCache"]
    json.dump(
        {
            "signatures": [
                str(function.__doc__).splitlines()[0]
                for function in (
                    config.create_timing_cache,
                    config.set_timing_cache,
                    config.get_timing_cache,
                    cache.combine,
                    cache.serialize,
                )
            ],
            "operators": operators,
            "versions": library.versions,
            "path": library.path,
            "capabilities": asdict(capabilities),
            "faults": [None if fault is None else asdict(fault) for fault in faults],
            "masks": masks,
            "integers": members,
        },
        sys.stdout,
    )


main()
