"""`seatrial history`: earlier runs and their verdicts."""

import click

from seatrial.cli.options import json_option, name_of, print_json
from seatrial.model.errors import InputError


@click.command()
@click.argument("cluster", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Number of runs, newest first."
)
@click.option("--links", is_flag=True, help="Show when each link between two nodes of CLUSTER was last measured.")
@json_option
def history(cluster: str | None, limit: int, links: bool, as_json: bool) -> None:
    """List earlier runs, all or those of CLUSTER (a name or a cluster file), with their verdicts."""
    from seatrial.history import open_store
    from seatrial.report.earlier_runs import history_json, show_history
    from seatrial.report.link_ages import LinkAges, show_link_ages

    cluster = cluster and name_of(cluster)
    if links and not cluster:
        raise InputError("history: --links needs a CLUSTER: a name or a cluster file")
    ages = None
    with open_store() as store:
        rows = store.runs(cluster, 1 if links else limit)
        if links and cluster and rows:
            nodes = store.hardware([rows[0].run_id]).get(rows[0].run_id, {})
            ages = LinkAges.of(rows[0], nodes, store.links_measured(cluster))
        recorded = sorted({row.cluster for row in store.runs(None, 1000)}) if cluster and not rows else []
    if recorded:
        raise InputError(f"history: no runs of cluster {cluster!r}; clusters with runs: {', '.join(recorded)}")
    if ages:
        print_json(ages.to_dict()) if as_json else show_link_ages(ages)
    elif as_json:
        print_json(history_json(rows))
    else:
        show_history(rows)
