"""`seatrial run`: the whole chain, once."""

import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from seatrial.cli import complete
from seatrial.cli.options import (
    FILE,
    any_cluster_argument,
    baseline_option,
    json_option,
    seconds,
    waiting,
)
from seatrial.model.errors import InputError
from seatrial.system.other_programs import watch_from_now
from seatrial.text.printable import printable

_TERMINATED = 143  # exit status: 128 and the number of SIGTERM
LIST = "list"
_MOST_S = 86_400


@click.command()
@any_cluster_argument
@click.option(
    "--nodes",
    type=click.IntRange(1, 100_000),
    default=4,
    show_default=True,
    help="Number of nodes.",
)
@click.option(
    "--gpus-per-node",
    type=click.IntRange(0, 64),
    default=8,
    show_default=True,
    help="GPUs of each node; 0: none.",
)
@json_option
def suites(cluster: Path | None, nodes: int, gpus_per_node: int, as_json: bool) -> None:
    """List what each shipped suite does, about how long it takes, and how long at most.

    Of the nodes of CLUSTER, a cluster file, or of --nodes and --gpus-per-node. The times follow
    from the suite's sizes, iterations and steps, and from the rates of H100 nodes or of processors;
    the limits are the suite's timeouts.
    """
    show_suites(cluster, nodes, gpus_per_node, as_json=as_json)


def show_suites(
    cluster: Path | None, nodes: int = 4, gpus_per_node: int = 8, *, as_json: bool
) -> None:
    """Print the suites for the nodes of a cluster file, or for so many nodes."""
    from seatrial.checks.contract import PlannedNodes
    from seatrial.checks.suites import nodes_of, outlines
    from seatrial.cli.options import print_json
    from seatrial.config.cluster import load_cluster
    from seatrial.report.listings import print_suites, suites_json

    planned = PlannedNodes(nodes, max(1, gpus_per_node), gpus_per_node > 0)
    listed = outlines(nodes_of(load_cluster(cluster)) if cluster else planned)
    if as_json:
        print_json(suites_json(listed))
    else:
        print_suites(listed)


def _not_passed(
    context: click.Context, run: str, suite: str, only: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the suite of the run and its checks that did not pass; no check where the run did not
    get that far.

    Raises InputError if everything has passed, or if the suite was a file.
    """
    from seatrial.checks.localize.rounds import LOCALIZE
    from seatrial.checks.suites import SHIPPED
    from seatrial.checks.table import CHECKS
    from seatrial.config.run import whole_name
    from seatrial.runs.login import run_of

    if only:
        raise InputError("--rerun, --only: give one of them")
    earlier = run_of(run)
    if context.get_parameter_source("suite") is ParameterSource.DEFAULT:
        suite = whole_name(earlier.suite)
        if suite not in SHIPPED:
            raise InputError(
                f"--rerun {run}: its suite was the file {suite}.yaml or similar; give it "
                "with --suite"
            )
    left = {check.name for check in earlier.checks if not check.passed}
    if not left:
        raise InputError(
            f"--rerun {run}: everything passed in it; leave --rerun out to run the suite again"
        )
    known = {kind.name for kind in CHECKS}
    # The nodes did not come up, or another step around the checks failed
    if left - known - {LOCALIZE}:
        return suite, ()
    return suite, tuple(sorted(left & known))


def _leave_on_signals() -> None:
    """Have the first SIGTERM or SIGHUP end this process with its status while nothing is up; ignore
    later ones.
    """

    def leave(number: int, frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        sys.exit(_TERMINATED)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


@click.command()
@any_cluster_argument
@click.option(
    "--suite",
    is_flag=False,
    flag_value=LIST,
    default="quick",
    show_default=True,
    shell_complete=complete.suites,
    help="quick, nightly, acceptance, a4-sweep, resnet50-fp32, qualify, or the path of a suite file; list, or nothing,"
    " shows what each does and how long it takes, as seatrial suites does.",
)
@click.option("--out", type=FILE, help="Output folder; default: runs/RUN_ID.")
@click.option(
    "--notify/--no-notify",
    default=True,
    show_default=True,
    help="Send alerts to the configured receivers.",
)
@click.option(
    "--rebuild", is_flag=True, help="Rebuild the image even if its inputs have not changed."
)
@click.option(
    "--budget",
    "budget_s",
    callback=seconds(r"(\d{1,5})([smh]?)", _MOST_S, "a time of 24h at most, such as 10m"),
    metavar="TIME",
    help="For repeats and for naming the part that is slow: 10m, 90s, 1h; 0: neither. Default: "
    "the suite's.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="CHECK",
    shell_complete=complete.checks,
    help="Run only this check, and connectivity, after which it comes; may be given several times.",
)
@click.option(
    "--rerun",
    metavar="RUN",
    shell_complete=complete.runs,
    help="Run only what did not pass in RUN (its id, folder or run.json), of its suite unless "
    "--suite says another.",
)
@baseline_option
@json_option
@click.option(
    "--junit", type=FILE, metavar="FILE", help="Write the checks as JUnit XML, too, for CI systems."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the last line: verdict and reason.")
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages.")
@click.pass_context
def run(
    context: click.Context,
    /,
    cluster: Path | None,
    suite: str,
    rerun: str | None,
    as_json: bool,
    **options: Any,
) -> NoReturn:
    """Run all checks on CLUSTER; the last line is the verdict with its reason.

    Exit status: 0 pass, 1 degraded, fail or corrupt, 2 bad input, 3 inconclusive or not_run.
    """
    if suite == LIST:
        show_suites(cluster, as_json=as_json)
        sys.exit(0)
    if cluster is None:
        raise click.MissingParameter(ctx=context, param_hint="'CLUSTER'", param_type="argument")
    if rerun is not None:
        suite, options["only"] = _not_passed(context, rerun, suite, options["only"])
    # The first line, at once; imports take seconds on a busy machine
    if sys.stderr.isatty() and not options["quiet"]:
        click.echo(
            f"{click.style('seatrial', bold=True)} {printable(f'{cluster} · {suite}')}", err=True
        )
    _leave_on_signals()
    watch_from_now()
    from seatrial.flows.serving.server import provide_prefect_server

    with nullcontext() if options["quiet"] else waiting("startup"):
        with suppress(InputError):  # the run says so, after all else that its input lacks
            # The server starts while the rest is imported and the input is checked
            provide_prefect_server()
        from seatrial.cli.run_by_hand import run_by_hand

    sys.exit(run_by_hand(cluster, suite, as_json=as_json, **options))
