"""How every command ends."""

# Errors are imported when there is one, so that --help and serve start fast.
# ruff: noqa: PLC0415

import os
import sys
import traceback
from collections.abc import Callable

import typer

from trt_agent_tools.cli.exit_codes import ExitCode


def exit_with(run: Callable[[], int]) -> None:
    """Call `run` and exit with what it returns, or with the status that its exception means."""
    from trt_agent_tools.model.errors import Refusal

    try:
        code = run()
    except Refusal as refusal:
        from trt_agent_tools.cli.display import print_error

        print_error(refusal.info)
        code = ExitCode.USAGE
    except KeyboardInterrupt:
        code = ExitCode.CANCELLED
    except BrokenPipeError:
        code = ExitCode.OUTPUT_CLOSED
    except Exception:  # noqa: BLE001  (whatever it is, it is this program's fault, and says so)
        traceback.print_exc()
        code = ExitCode.INTERNAL
    if code == ExitCode.OUTPUT_CLOSED:
        # Nobody reads: what is still buffered must not raise once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(code)
