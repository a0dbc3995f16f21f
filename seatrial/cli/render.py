"""`seatrial render`: what a run would submit."""

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import cluster_argument, json_option, print_json, suite_option

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster


@click.command()
@cluster_argument
@suite_option
@json_option
def render(cluster: Path, suite: str, as_json: bool) -> None:
    """Show what a run of CLUSTER would submit, without submitting it."""
    from seatrial.checks.suites import load_suite
    from seatrial.config.cluster import load_cluster
    from seatrial.config.run import Run
    from seatrial.platforms import platform_for

    loaded = load_cluster(cluster)
    planned = Run("RUN-ID", loaded, load_suite(suite), Path("runs/RUN-ID"))
    files = {**_rendered_image(loaded), **platform_for(loaded, cluster).render(planned).files}
    if as_json:
        print_json(files)
    else:
        for name, text in files.items():
            print(f"# --- {name}\n{text}")


def _rendered_image(cluster: "Cluster") -> dict[str, str]:
    """The image build, if the cluster file has one."""
    if cluster.image is None:
        return {}
    from seatrial.builders import render_image
    from seatrial.config.architecture import node_architecture

    return render_image(cluster.image, node_architecture(cluster, platform.machine()))
