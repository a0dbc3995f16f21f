"""Arguments, options and output shared by the commands."""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seatrial.cli import complete
from seatrial.model.errors import InputError, os_errors_named
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from pandas import DataFrame

    from seatrial.model.result import RunResult

FILE = click.Path(path_type=Path)
AGE = r"([1-9]\d{0,4})([hdw])"
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}

cluster_argument = click.argument("cluster", type=FILE)
any_cluster_argument = click.argument("cluster", type=FILE, required=False)
run_argument = click.argument("run", metavar="RUN", shell_complete=complete.runs)
suite_option = click.option(
    "--suite",
    default="quick",
    show_default=True,
    shell_complete=complete.suites,
    help="quick, nightly, acceptance, a4-sweep, resnet50-fp32, qualify, or the path of a suite "
    "file.",
)
baseline_option = click.option(
    "--require-baseline",
    is_flag=True,
    help="Exit with 3 if the verdict is pass while something that was measured has no baseline yet.",
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document to standard output, and messages to standard error.",
)

csv_option = click.option(
    "--csv", "as_csv", is_flag=True, help="Print one table as CSV to standard output."
)


def seconds(pattern: str, most_s: float, legal: str) -> Callable[..., float | None]:
    """Return the callback of an option that takes a number and a unit, as `pattern` has them.

    The callback raises InputError with what is `legal`, also above `most_s`; else it returns
    seconds.
    """

    def read(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
        if text is None:
            return None
        match = re.fullmatch(pattern, text, re.ASCII)
        span_s = int(match[1]) * _SECONDS[match[2]] if match else math.inf
        if span_s > most_s:
            raise InputError(f"{option.opts[0]} {printable(text[:40])!r}: must be {legal}")
        return float(span_s)

    return read


def write_new(file: Path, content: bytes, taken: InputError) -> None:
    """Write a file whole or not at all. Raises InputError, `taken` if one is there."""
    with os_errors_named(f"{file}: cannot be written"):
        try:
            with file.open("xb") as new:
                new.write(content)
        except FileExistsError as error:
            raise taken from error
        except OSError:
            file.unlink(missing_ok=True)
            raise


def name_of(cluster: str) -> str:
    """Return the cluster's name, given as such or by a cluster file. Raises InputError."""
    file = Path(cluster)
    # isfile returns False for a path that is too long
    if file.suffix not in (".yaml", ".yml") or not os.path.isfile(file):
        return cluster
    from seatrial.config.cluster import load_cluster

    return load_cluster(file).name


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


def print_csv(frame: "DataFrame") -> None:
    """Print the table with its column names; no cell is a formula."""
    from seatrial.text.escape import as_text

    print(frame.map(as_text).to_csv(index=False, lineterminator="\n"), end="")


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """Show on a terminal what is waited for, and how long, until the block ends."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(description, total=None)
        yield


def close_killed() -> "list[RunResult]":
    """Close the runs that were killed since the last command, and return their results."""
    from seatrial.runs.at_work import killed_runs

    if not killed_runs():
        return []
    with waiting("closing runs that were killed"):
        from seatrial.flows.serving.killed import close_killed_runs

        return close_killed_runs()
