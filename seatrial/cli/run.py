"""`seatrial run`: the whole chain, once."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from seatrial.cli.options import FILE, baseline_option, cluster_argument, json_option, suite_option


@click.command()
@cluster_argument
@suite_option
@click.option("--out", type=FILE, help="Output folder; default: runs/RUN_ID.")
@click.option("--notify/--no-notify", default=True, show_default=True, help="Send alerts to the configured receivers.")
@click.option("--rebuild", is_flag=True, help="Rebuild the image even if its inputs have not changed.")
@baseline_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages.")
def run(
    cluster: Path,
    suite: str,
    out: Path | None,
    notify: bool,
    rebuild: bool,
    require_baseline: bool,
    as_json: bool,
    verbose: bool,
) -> NoReturn:
    """Run all checks on CLUSTER; the last line is the verdict with its reason.

    Exit status: 0 pass, 1 degraded, fail or corrupt, 2 bad input, 3 inconclusive or not_run.
    """
    from seatrial.cli.run_by_hand import run_by_hand

    status = run_by_hand(
        cluster,
        suite,
        out,
        notify=notify,
        rebuild=rebuild,
        require_baseline=require_baseline,
        as_json=as_json,
        verbose=verbose,
    )
    sys.exit(status)
