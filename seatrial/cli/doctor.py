"""`seatrial doctor`: what this machine lacks for a run."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from seatrial.cli.options import FILE


@click.command()
@click.argument("cluster", type=FILE, required=False)
def doctor(cluster: Path | None) -> NoReturn:
    """List what this machine lacks for a run, each with the next step.

    Without CLUSTER, check for the local platform. Exit status: 0 nothing is missing, 1 something is missing."""
    from seatrial.cli.diagnose import diagnose

    sys.exit(diagnose(cluster))
