"""The command `seatrial`: its commands, each imported when it is called, with everything heavy."""

import io
import os
import signal
import sys
from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from seatrial import __version__
from seatrial.model.errors import InputError, SeatrialError
from seatrial.system.state_home import ensure_home

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MODULES = {
    "baseline": ("baseline",),
    "certify": ("certify",),
    "diagnose": ("diagnose",),
    "examples": ("examples",),
    "explain": ("explain",),
    "init": ("init",),
    "localize": ("localize",),
    "logs": ("judge", "parse", "simulate"),
    "nodes": ("dial", "probe", "reap", "release", "render", "ssh", "status", "watch"),
    "past_runs": ("bundle", "compare", "history", "rejudge", "replay", "report", "verify"),
    "qualify": ("qualify",),
    "run": ("run", "suites"),
    "upkeep": ("doctor", "prune", "serve"),
}


class _Commands(UserDict[str, Any]):
    """The commands by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(f"seatrial.cli.{self.data[name]}"), name)
        return command


@click.group(
    commands=_Commands({name: module for module, names in _MODULES.items() for name in names}),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="seatrial")
def app() -> None:
    """Sea trials for GPU clusters: image, nodes, MPI, collectives, training, verdict."""


class _Output(io.FileIO):
    """Standard output whose reader may go, as that of `| head`: the exit status stays the
    command's own.
    """

    def write(self, data: "ReadableBuffer") -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def _open_streams() -> None:
    """Open the streams that the shell closed (`>&-`), and make standard output an `_Output`."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # Its descriptor is the one that was closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(1, "w", closefd=False)),
            sys.stdout.encoding,
            sys.stdout.errors,
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )


def main() -> NoReturn:
    """Run the command line; each error is one line on standard error."""
    _open_streams()
    # Searching all packages for plugins takes a while
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # of Prefect: no telemetry, and no notice of it
    ensure_home()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Names and logs may hold characters that the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app.main(prog_name="seatrial", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:  # an unknown option, a missing argument
        context = error.ctx if isinstance(error, click.UsageError) else None
        message = error.format_message().removesuffix(".")
        sys.exit(
            _complain(f"{message}; see {context.command_path} --help" if context else message, 2)
        )
    except click.Abort:  # Ctrl-C where nothing is up
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would only interrupt the end
        sys.exit(130)
    except InputError as error:
        sys.exit(_complain(error, 2))
    except SeatrialError as error:  # not the cluster's fault, so not 1
        sys.exit(_complain(error, 3))
    except OSError as error:  # a full disk, or a terminal that has gone
        # What is still buffered cannot be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(_complain(error, 3))


def _complain(error: Exception | str, status: int) -> int:
    """Print each error on one line without control characters; return the exit status."""
    from seatrial.text.docs import with_addresses
    from seatrial.text.words import plain

    for line in getattr(error, "lines", (error,)):
        print(f"seatrial: {with_addresses(plain(line))}", file=sys.stderr)
    return status
