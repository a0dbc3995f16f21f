"""`seatrial run`: the whole chain, once."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click

from seatrial.cli.options import FILE, baseline_option, json_option
from seatrial.cli.suites import show_suites
from seatrial.model.errors import InputError

LIST = "list"


@click.command()
@click.argument("cluster", type=FILE, required=False)
@click.option(
    "--suite",
    is_flag=False,
    flag_value=LIST,
    default="quick",
    show_default=True,
    help="quick, nightly, acceptance, a4-sweep, or the path of a suite file; list, or nothing, shows what each does and"
    " how long it takes, as seatrial suites does.",
)
@click.option("--out", type=FILE, help="Output folder; default: runs/RUN_ID.")
@click.option("--notify/--no-notify", default=True, show_default=True, help="Send alerts to the configured receivers.")
@click.option("--rebuild", is_flag=True, help="Rebuild the image even if its inputs have not changed.")
@baseline_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages.")
@click.pass_context
def run(
    context: click.Context,
    cluster: Path | None,
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
    if suite == LIST:
        show_suites(cluster, as_json=as_json)
        sys.exit(0)
    if cluster is None:
        raise click.MissingParameter(ctx=context, param_hint="'CLUSTER'", param_type="argument")
    from flows.serving.server import provide_prefect_server

    with suppress(InputError):  # the run says so, after all else that its input lacks
        provide_prefect_server()  # it starts while the rest is imported and the input is checked
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
