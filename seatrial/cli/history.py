"""`seatrial history`: earlier runs and their verdicts."""

from typing import TYPE_CHECKING

import click

from seatrial.cli.options import csv_option, json_option, name_of, print_csv, print_json
from seatrial.model.errors import InputError

if TYPE_CHECKING:
    from seatrial.history import RunRow
    from seatrial.history.store import Store


@click.command()
@click.argument("cluster", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Number of runs, newest first."
)
@click.option("--links", is_flag=True, help="Show when each link between two nodes of CLUSTER was last measured.")
@csv_option
@json_option
def history(cluster: str | None, limit: int, links: bool, as_csv: bool, as_json: bool) -> None:
    """List earlier runs, all or those of CLUSTER (a name or a cluster file), with their verdicts."""
    from seatrial.history import open_store
    from seatrial.report.earlier_runs import history_frame, history_json, show_history

    cluster = cluster and name_of(cluster)
    if links and not cluster:
        raise InputError("history: --links needs a CLUSTER: a name or a cluster file")
    with open_store() as store:
        rows = store.runs(cluster, 1 if links else limit)
        if cluster and not rows and (recorded := sorted({row.cluster for row in store.runs(None, 1000)})):
            raise InputError(f"history: no runs of cluster {cluster!r}; clusters with runs: {', '.join(recorded)}")
        if links and rows:
            _links(store, rows[0], as_csv, as_json)
            return
    if as_json:
        print_json(history_json(rows))
    elif as_csv:
        print_csv(history_frame(rows))
    else:
        show_history(rows)


def _links(store: "Store", newest: "RunRow", as_csv: bool, as_json: bool) -> None:
    from seatrial.report.link_ages import link_ages, link_ages_json, show_link_ages

    nodes = store.hardware([newest.run_id]).get(newest.run_id, {})
    ages = link_ages(newest, nodes, store.links_measured(newest.cluster))
    if as_json:
        print_json(link_ages_json(newest, len(nodes), ages))
    elif as_csv:
        print_csv(ages)
    else:
        show_link_ages(newest, len(nodes), ages)
