"""`seatrial suites`: what the shipped suites will do, and how long that takes."""

from pathlib import Path

import click

from seatrial.cli.options import FILE, json_option


@click.command()
@click.argument("cluster", type=FILE, required=False)
@click.option("--nodes", type=click.IntRange(1, 100_000), default=4, show_default=True, help="Number of nodes.")
@click.option(
    "--gpus-per-node", type=click.IntRange(0, 64), default=8, show_default=True, help="GPUs of each node; 0: none."
)
@json_option
def suites(cluster: Path | None, nodes: int, gpus_per_node: int, as_json: bool) -> None:
    """List what each shipped suite does, about how long it takes, and how long at most.

    Of the nodes of CLUSTER, a cluster file, or of --nodes and --gpus-per-node. The times follow from the suite's sizes,
    iterations and steps, and from the rates of H100 nodes or of processors; the limits are the suite's timeouts.
    """
    show_suites(cluster, nodes, gpus_per_node, as_json=as_json)


def show_suites(cluster: Path | None, nodes: int = 4, gpus_per_node: int = 8, *, as_json: bool = False) -> None:
    """Print the suites for the nodes of a cluster file, or for so many nodes."""
    from seatrial.checks.contract import PlannedNodes
    from seatrial.checks.suites import nodes_of, outlines
    from seatrial.cli.options import print_json
    from seatrial.config.cluster import load_cluster
    from seatrial.report.suites import print_suites, suites_json

    planned = PlannedNodes(nodes, max(1, gpus_per_node), gpus_per_node > 0)
    listed = outlines(nodes_of(load_cluster(cluster)) if cluster else planned)
    if as_json:
        print_json(suites_json(listed))
    else:
        print_suites(listed)
