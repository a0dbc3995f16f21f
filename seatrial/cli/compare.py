"""`seatrial compare`: what changed between two runs."""

import click

from seatrial.cli.options import csv_option, json_option, print_csv, print_json


@click.command()
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@csv_option
@json_option
def compare(before: str, after: str, as_csv: bool, as_json: bool) -> None:
    """Show what changed between two RUNs: verdicts, software, and measurements that moved beyond their noise.

    A RUN is a run's folder, its run.json, or its id in the history.
    """
    from seatrial.report.compared import show_difference
    from seatrial.runs.difference import difference
    from seatrial.runs.find import run_of

    changes = difference(run_of(before), run_of(after))
    if as_json:
        print_json(changes.to_dict())
    elif as_csv:
        print_csv(changes.measurements.drop(columns="conditions"))  # `what` says them
    else:
        show_difference(changes)
