"""`seatrial qualify`: idle, new and repaired nodes of a cluster at work, in and out of service."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from seatrial.cli import complete
from seatrial.cli.options import AGE, FILE, json_option, print_json, seconds, waiting
from seatrial.text.printable import printable

# For people
_STATES = {"gated": "at the gate", "out": "out of service", "named": "known by its name only"}


def show_standing(file: Path, *, as_json: bool) -> None:
    """Print the newest campaign of a cluster, its nodes, and how much of it is covered.

    Raises InputError for a cluster with neither a campaign nor the section `qualify`.
    """
    from seatrial.config.cluster import load_cluster
    from seatrial.history import open_store
    from seatrial.model.errors import InputError
    from seatrial.model.result import now
    from seatrial.platforms.service import node_service
    from seatrial.qualify.current import standing

    cluster = load_cluster(file)
    with waiting(f"asking for the nodes of {cluster.name}"), open_store() as store:
        campaign = store.campaign(cluster.name)
        if cluster.qualify is None and campaign is None:
            raise InputError(
                f"{file}: no campaign was run, and qualify: is missing (docs/qualify.md)"
            )
        current = (
            standing(cluster, cluster.qualify, node_service(cluster), store, now())
            if cluster.qualify
            else None
        )
    if as_json:
        nodes = current.nodes if current else ()
        states = {
            node.name: {"state": node.state, "group": node.group, "why": node.why} for node in nodes
        }
        covered = current.coverage.to_dict() if current else {}
        progress = campaign.to_dict() if campaign else None
        print_json({"cluster": cluster.name, "campaign": progress, "states": states, **covered})
        return
    for line in campaign.lines() if campaign else ():
        print(printable(line))
    if current is None:
        return
    for node in current.nodes:
        age = current.coverage.nodes[node.name]
        passed = (
            "never passed" if age is None else f"passed {age.total_seconds() / 86400:.1f} days ago"
        )
        why = f" ({node.why})" if node.why else ""
        state = _STATES.get(node.state, node.state)
        print(
            printable(f"{node.name}  {state}{why}  {passed}{current.evidence.open_test(node.name)}")
        )
    for line in current.coverage.lines():
        print(printable(line))


@click.command()
@click.argument("cluster", type=FILE)
@click.argument("nodes", nargs=-1, shell_complete=complete.nodes_of_cluster)
@click.option(
    "--idle", is_flag=True, help="Test idle nodes alone, not those that wait at the gate."
)
@click.option("--gated", is_flag=True, help="Test nodes alone that wait at the gate.")
@click.option(
    "--at-once",
    type=click.IntRange(1, 16),
    metavar="N",
    help="Nodes of one job; default: the file's.",
)
@click.option(
    "--max-age",
    "max_age_s",
    callback=seconds(AGE, 366 * 86_400, "a whole number and h, d or w, such as 7d; 366d at most"),
    metavar="AGE",
    help="Greatest age of a test: 7d, 36h or 2w.",
)
@click.option(
    "--notify/--no-notify",
    default=True,
    show_default=True,
    help="Send alerts to the configured receivers.",
)
@json_option
def qualify(
    cluster: Path,
    nodes: tuple[str, ...],
    idle: bool,
    gated: bool,
    at_once: int | None,
    max_age_s: float | None,
    notify: bool,
    as_json: bool,
) -> NoReturn:
    """Test idle NODEs of CLUSTER, or all that are due, and let nodes in that wait at the gate.

    CLUSTER is a cluster file with the section `qualify`. A test gives way to any job. Nodes go in
    and out of service only if the section says `dry_run: false`.

    Exit status: 0 all passed; 1 a node failed; 2 bad input; 3 a node was not tested, or its test
    gave way.
    """
    if nodes and (idle or gated):
        raise click.UsageError("NODE and --idle or --gated: give one of them")
    from seatrial.config.run import check_runs_folder
    from seatrial.flows.serving.by_hand import flow_by_hand
    from seatrial.history import check_history
    from seatrial.model.result import RunResult

    check_history()
    check_runs_folder()
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    with waiting(f"qualify {cluster}"):
        result = flow_by_hand(
            "seatrial.flows.qualify:qualify",
            cluster=str(cluster),
            nodes=list(nodes) or None,
            idle=idle or not gated,
            gated=gated or not idle,
            at_once=at_once,
            max_age_days=max_age_s and max_age_s / 86_400,
            notify=notify,
        )
    if not isinstance(result, RunResult):
        click.echo(printable(result.reason.sentence), err=True)
        sys.exit(result.exit_status)
    if as_json:
        print_json(result.to_dict())
    else:
        for line in result.notes:
            print(printable(line))
        print(printable(f"{result.verdict.value}: {result.reason}"))
    sys.exit(result.verdict.exit_status)
