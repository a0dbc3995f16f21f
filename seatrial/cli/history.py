"""`seatrial history`: earlier runs and their verdicts."""

import click

from seatrial.cli.options import json_option, name_of, print_json
from seatrial.model.errors import InputError


@click.command()
@click.argument("cluster", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Number of runs, newest first."
)
@json_option
def history(cluster: str | None, limit: int, as_json: bool) -> None:
    """List earlier runs, all or those of CLUSTER (a name or a cluster file), with their verdicts."""
    from seatrial.history import open_store
    from seatrial.report.earlier_runs import history_json, show_history

    cluster = cluster and name_of(cluster)
    with open_store() as store:
        rows = store.runs(cluster, limit)
        recorded = sorted({row.cluster for row in store.runs(None, 1000)}) if cluster and not rows else []
    if recorded:
        raise InputError(f"history: no runs of cluster {cluster!r}; clusters with runs: {', '.join(recorded)}")
    if as_json:
        print_json(history_json(rows))
    else:
        show_history(rows)
