"""`seatrial parse`: nccl-tests output as tidy rows."""

import sys

import click

from seatrial.cli.options import json_option, print_json
from seatrial.model.errors import NothingFoundError


@click.command()
@click.argument("logs", nargs=-1, required=True)
@json_option
def parse(logs: tuple[str, ...], as_json: bool) -> None:
    """Convert nccl-tests output of any version, with any line prefix, to tidy rows.

    LOGS are files, text or JSON; - is standard input. Exit status 2 if one of them has no nccl-tests output.
    """
    from seatrial.nccl import Sweep, parse_file, parse_text, render

    by_log: dict[str, list[Sweep]] = {}
    nothing: NothingFoundError | None = None
    for log in logs:
        try:
            by_log[log] = parse_text(sys.stdin, "standard input") if log == "-" else parse_file(log)
        except NothingFoundError as error:
            nothing = error
            by_log[log] = [Sweep.nothing(str(error))]
    if as_json:
        print_json([{"source": log, **sweep.to_dict()} for log, sweeps in by_log.items() for sweep in sweeps])
    else:
        for log, sweeps in by_log.items():
            print(f"{log}\n{render(sweeps)}")
    if nothing:
        raise nothing
