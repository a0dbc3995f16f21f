"""`seatrial judge`: a verdict on logs that already exist."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli.options import baseline_option, json_option, print_json
from seatrial.model.coverage import exit_status
from seatrial.model.errors import InputError, NothingFoundError
from seatrial.text.printable import printable
from seatrial.text.similar import nearest_of

OTHER = "other"

if TYPE_CHECKING:
    from seatrial.judge.logs import Log
    from seatrial.nccl import Sweep


@click.command()
@click.argument("logs", nargs=-1, required=True)
@click.option(
    "--hardware",
    required=True,
    callback=lambda _, __, name: _known(name),
    help=f"Hardware name, as in a cluster file; {OTHER} for hardware that the catalog does not have.",
)
@click.option(
    "--nodes", required=True, type=click.IntRange(min=1), help="Number of nodes that took part, or should have."
)
@click.option(
    "--gpus-per-node", type=click.IntRange(min=1), help="GPUs per node; default: the usual number for the hardware."
)
@click.option("--fabric", help="What data between nodes must go over, as in a cluster file: IB-8x400G.")
@baseline_option
@json_option
def judge(
    logs: tuple[str, ...],
    hardware: str,
    nodes: int,
    gpus_per_node: int | None,
    fabric: str | None,
    require_baseline: bool,
    as_json: bool,
) -> NoReturn:
    """Judge the nccl-tests LOGS of one run, from any launcher, against reference values for the hardware.

    LOGS are files, text or JSON; - is standard input. Exit status: 0 pass, 1 degraded, fail or corrupt, 2 bad input,
    3 inconclusive or not_run.
    """
    from seatrial.judge.logs import LogsConfig, judge_logs
    from seatrial.report.judged import show_judged, to_dict

    judged = judge_logs(_read(logs), LogsConfig(hardware, nodes, gpus_per_node, fabric))
    if as_json:
        print_json(to_dict(judged))
    else:
        show_judged(judged)
    sys.exit(exit_status(judged.verdict, judged.coverage, require_baseline))


def _known(name: str) -> str:
    """The name, if the catalog has it. Raises InputError naming the nearest: a typo would compare with nothing."""
    from seatrial.catalog import known_hardware

    if name != OTHER and name not in known_hardware():
        nearest = nearest_of(name, known_hardware()) or f"known: {', '.join(known_hardware())}"
        raise InputError(f"--hardware: {printable(name)!r} is not in the catalog; {nearest}; or {OTHER}")
    return name


def _read(paths: tuple[str, ...]) -> "list[Log]":
    """The logs by the shortest name that tells them apart. Raises InputError where none of them holds anything."""
    from seatrial.judge.logs import Log

    stems = [Path(path).stem for path in paths]
    sweeps_by_log: dict[str, tuple[Sweep, ...]] = {}
    nothing: NothingFoundError | None = None
    for path, stem in zip(paths, stems, strict=True):
        name = stem if stems.count(stem) == 1 else path
        try:
            sweeps_by_log[name] = _sweeps(path)
        except NothingFoundError as error:
            sweeps_by_log[name], nothing = (), error
    if nothing and not any(sweeps_by_log.values()):
        raise nothing
    return [Log(name, sweeps) for name, sweeps in sweeps_by_log.items()]


def _sweeps(path: str) -> "tuple[Sweep, ...]":
    from seatrial.nccl import parse_file, parse_text

    return tuple(parse_text(sys.stdin, "standard input") if path == "-" else parse_file(path))
