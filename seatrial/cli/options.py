"""What the modules of the command line share."""

import json
import os
from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path)

cluster_argument = click.argument("cluster", type=FILE)
suite_option = click.option(
    "--suite",
    default="quick",
    show_default=True,
    help="quick, nightly, acceptance, a4-sweep, or the path of a suite file.",
)
baseline_option = click.option(
    "--require-baseline",
    is_flag=True,
    help="Exit with 3 if the verdict is pass while something that was measured has no baseline yet.",
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document to standard output, and messages to standard error.",
)


def name_of(cluster: str) -> str:
    """The cluster's name, where a name is wanted and a cluster file may be given. Raises InputError."""
    file = Path(cluster)
    if file.suffix not in (".yaml", ".yml") or not os.path.isfile(file):  # which says no of what is too long
        return cluster
    from seatrial.config.cluster import load_cluster

    return load_cluster(file).name


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))
