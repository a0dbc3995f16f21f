"""`seatrial replay`: the judge over anybody's numbers."""

from pathlib import Path

import click

from seatrial.cli.options import json_option, print_json


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def replay(file: Path, as_json: bool) -> None:
    """Judge the runs in FILE one after the other, each by the runs before it.

    FILE is CSV with one row for each reading, as in measurements.csv: run_id, metric, subject_kind, subject, value and
    unit, and optionally started, cluster, suite, check, better, model, driver, clock; any other column is a condition.
    Several rows of one series in a run are its readings in order; the judge takes the later ones only if it would have
    measured again. Exit status: 0 whatever the verdicts, 2 for a file that cannot be read.
    """
    from seatrial.runs.replay import read_rows, replay
    from seatrial.text.words import plain

    runs = replay(read_rows(file))
    if as_json:
        print_json([run.to_dict() for run in runs])
    else:
        for run in runs:
            print(plain(f"{run.run_id}: {run.verdict.value}: {run.reason}"))
