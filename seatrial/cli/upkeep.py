"""`seatrial serve`, `prune` and `doctor`: the machine that runs checks."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli import complete
from seatrial.cli.options import (
    AGE,
    FILE,
    any_cluster_argument,
    json_option,
    name_of,
    print_json,
    seconds,
    waiting,
)
from seatrial.model.errors import InputError, SeatrialError
from seatrial.system.shipped import CLUSTERS, example

if TYPE_CHECKING:
    from seatrial.runs.prune import Outcome


@click.command()
@click.argument("clusters", metavar="[CLUSTER]...", nargs=-1, type=FILE)
@click.option(
    "--suite",
    shell_complete=complete.suites,
    help="Suite to run: a name or a suite file; default: nightly.",
)
@click.option("--cron", help="Schedule: minute, hour, day, month, weekday; default: 0 2 * * *.")
@click.option(
    "--timezone",
    help="Time zone of the schedule, for example Europe/Berlin; default: this machine's.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=4200,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port of UI and API.",
)
def serve(
    clusters: tuple[Path, ...],
    suite: str | None,
    cron: str | None,
    timezone: str | None,
    host: str,
    port: int,
) -> None:
    """Check CLUSTERs on a schedule, until Ctrl-C: starts Prefect server, UI and runner.

    CLUSTERs are cluster files; default: deployments/clusters/local.yaml. Runs write to runs/ in the
    current folder. The same command resumes after a restart. Suite and schedule of one cluster are
    the field `schedule` of its file, over which the options win.
    """
    from seatrial.flows.serving.serve import ServeConfig
    from seatrial.flows.serving.serve import serve as serve_site

    chosen = clusters or (CLUSTERS / "local.yaml",)
    files = tuple(dict.fromkeys(str(example(file).absolute()) for file in chosen))
    serve_site(ServeConfig(files, suite, cron, timezone), host, port)


@click.command()
@click.argument("cluster", required=False, shell_complete=complete.clusters)
@click.option(
    "--older-than",
    "age_s",
    callback=seconds(
        AGE, 100_000 * 7 * 86_400, "a whole number of 1 or more and h, d or w, such as 30d"
    ),
    metavar="AGE",
    help="Remove runs that started longer ago: 12h, 30d or 8w.",
)
@click.option(
    "--keep",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Keep the newest N runs of each cluster.",
)
@click.option(
    "--runs",
    type=FILE,
    default="runs",
    show_default=True,
    help="Folder that holds the folders of runs.",
)
@click.option(
    "--slurm-output",
    type=FILE,
    metavar="PATH",
    help="Instead of runs: output of the batch scripts of `seatrial render`, where they were "
    "submitted.",
)
@click.option("--yes", is_flag=True, help="Remove them; without this option, only list them.")
@json_option
def prune(
    cluster: str | None,
    age_s: float | None,
    keep: int | None,
    runs: Path,
    slurm_output: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove old runs of CLUSTER (a name or a cluster file), or of all clusters: folders and rows
    of the history.

    Lists what it would remove; --yes removes it. With both --older-than and --keep, a run goes only
    if both let it go. The last run that passed, runs that baselines are pinned from, and runs at
    work always stay; of Slurm's output, that of the newest job in which nothing failed.
    """
    from seatrial.runs.prune import Limits, prune_runs
    from seatrial.runs.slurm_output import prune_outputs

    if age_s is None and keep is None:
        raise InputError("prune: needs --older-than AGE (such as 30d), --keep N, or both")
    limits = Limits(timedelta(seconds=age_s) if age_s is not None else None, keep)
    if slurm_output is None:
        outcome = prune_runs(runs, limits, cluster and name_of(cluster), delete=yes)
    elif cluster is not None:
        raise InputError(
            "--slurm-output: takes no CLUSTER, as the output of a job does not tell it; "
            "leave CLUSTER out"
        )
    else:
        outcome = prune_outputs(slurm_output, limits, delete=yes)
    if as_json:
        print_json(outcome.to_dict())
    else:
        _show(outcome)
    if outcome.failed:
        first = outcome.failed[0]
        raise SeatrialError.of("run-not-removed", name=first.name, problem=first.problem)


def _show(outcome: "Outcome") -> None:
    from seatrial.runs.prune import megabytes
    from seatrial.text.words import count, plain

    for line in outcome.removed:
        print(plain(line))
    for skipped in outcome.skipped:
        print(f"left: {plain(skipped.name)}: {plain(skipped.problem)}")
    summary = f"{count(len(outcome.removed), outcome.noun)}, {megabytes(outcome.size_bytes)}"
    if outcome.rows is None:
        summary = f"output of {summary}"
    else:
        summary += f"; {outcome.rows} runs of the history"
    print(
        f"removed: {summary}" if outcome.deleted else f"would remove: {summary}; --yes removes them"
    )


@click.command()
@any_cluster_argument
@json_option
def doctor(cluster: Path | None, as_json: bool) -> NoReturn:
    """List what this machine lacks for a run, each with the next step.

    Without CLUSTER, check for the local platform. Exit status: 0 nothing is missing, 1 something is
    missing.
    """
    with waiting(f"looking at {cluster or 'this machine'}"):
        from seatrial.cli.doctor import diagnosed, show

        findings = diagnosed(cluster)
    sys.exit(show(findings, as_json=as_json))
