"""`seatrial reap`: remove what ended runs left behind."""

import logging
from pathlib import Path

import click

from seatrial.cli.options import FILE


@click.command()
@click.argument("cluster", type=FILE, required=False)
@click.option("--run", "kept", metavar="RUN", help="Remove only this run (id or folder), even if its nodes are kept.")
def reap(cluster: Path | None, kept: str | None) -> None:
    """Remove the remains of killed runs, and nodes whose keep time has expired."""
    from seatrial.config.cluster import load_cluster
    from seatrial.platforms import platform_for, platforms
    from tasks.launch import end
    from tasks.launch import reap as reap_platform

    if kept:
        print(f"{end(kept, load_cluster(cluster) if cluster else None)}: removed")
        return

    logging.getLogger("seatrial").setLevel(logging.ERROR)  # what is reaped is printed here
    chosen = [platform_for(load_cluster(cluster), cluster)] if cluster else list(platforms().values())
    left = [leftover for platform in chosen for leftover in reap_platform(platform)]
    for leftover in left:
        print(f"{leftover.run_id}: removed {leftover.what}")
    print(f"{len(left)} run{'' if len(left) == 1 else 's'} reaped")
