"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ENV = "Also TRT_AGENT_TOOLS_"
"""Begins the word on the environment variable of an option."""

StateDir = Annotated[
    Path | None,
    typer.Option(
        help=f"Where builds, their logs and their supervisor are. Default: the user's state folder. {ENV}STATE_DIR.",
        show_default=False,
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE", help=f"The policy. Default: default. {ENV}POLICY.", show_default=False
    ),
]
Roots = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        help="A folder that models are read from and engines written to; may repeat. "
        f"Default: the current folder. {ENV}ROOT, separated as in PATH.",
        show_default=False,
    ),
]
BuildRoots = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        help="A folder that the model is read from and the engine written to; may repeat. "
        f"Default: the folders of the files named here. {ENV}ROOT, separated as in PATH.",
        show_default=False,
    ),
]
EnableReplay = Annotated[
    bool | None,
    typer.Option(
        "--enable-replay",
        help=f"Allow the backend that plays recorded builds. {ENV}ENABLE_REPLAY.",
        show_default=False,
    ),
]
AllowPlugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--allow-plugin",
        help=f"A plugin library that builds may load; may repeat. {ENV}ALLOW_PLUGIN, likewise.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Embedded = Annotated[
    bool | None,
    typer.Option(
        "--embedded/--no-embedded",
        help="Keep the supervisor in this process, for containers and tests: builds end with it. "
        f"Default: the supervisor of the state folder, started if there is none. {ENV}EMBEDDED.",
        show_default=False,
    ),
]
EngineCache = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where engines are kept for reuse; servers may share it. Default: engines in the state "
        f"folder. {ENV}ENGINE_CACHE.",
        show_default=False,
    ),
]
EngineCacheSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="How much is kept, the least recently used going first; 0 turns reuse off. "
        f"Default: 10GiB. {ENV}ENGINE_CACHE_SIZE.",
        show_default=False,
    ),
]
BuildId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A build's id, or a beginning of it that no other has.",
        show_default=False,
    ),
]
