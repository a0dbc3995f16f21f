"""Commands that need no nodes: parse, judge, explain and simulate."""

import os
import re
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli import complete
from seatrial.cli.options import baseline_option, json_option, print_json, waiting
from seatrial.model.errors import InputError, NothingFoundError, os_errors_named
from seatrial.model.result import exit_status
from seatrial.model.verdict import Verdict
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from seatrial.logs.judge import Log

OTHER = "other"
HOSTNAMES = "hostnames.log"  # of the script for Slurm: what `hostname` prints on each node
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")
_MOST_FILES = 10_000
_MOST_HOSTS = 100_000


@click.command()
@click.argument("logs", nargs=-1, required=True)
@json_option
def parse(logs: tuple[str, ...], as_json: bool) -> None:
    """Convert nccl-tests output of any version, with any line prefix, to tidy rows.

    LOGS are files, text or JSON; - is standard input. Exit status 2 if one of them has no
    nccl-tests output.
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
        print_json(
            [
                {"source": log, **sweep.to_dict()}
                for log, sweeps in by_log.items()
                for sweep in sweeps
            ]
        )
    else:
        for log, sweeps in by_log.items():
            print(f"{log}\n{render(sweeps)}")
    if nothing:
        raise nothing


def _checked_hardware(
    context: click.Context, option: click.Parameter, name: str | None
) -> str | None:
    """Return the catalog's name of that hardware, or the model's own.

    Raises InputError for a name of no GPU.
    """
    from seatrial.catalog.hardware_names import find_hardware

    if name is None or name == OTHER:
        return name
    hardware, line = find_hardware(name)
    if hardware is None:
        raise InputError(
            f"--hardware: {printable(name)!r} is not in the catalog; {line}; or {OTHER}"
        )
    if line:
        click.echo(f"--hardware: {printable(line)}", err=True)
    return hardware


def _checked_fabric(
    context: click.Context, option: click.Parameter, name: str | None
) -> str | None:
    """Return the name if something is known of the fabric.

    Raises InputError with the nearest name.
    """
    from seatrial.catalog import unknown_fabric

    if name is not None and (unknown := unknown_fabric(name)):
        raise InputError(f"--fabric: {unknown}")
    return name


@click.command()
@click.argument("logs", nargs=-1, required=True)
@click.option(
    "--hardware",
    callback=_checked_hardware,
    shell_complete=complete.hardware,
    help=f"GPU model, such as H100 or MI300X; default: the one that the log names. {OTHER} is "
    "held against nothing.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    help="Number of nodes that should have taken part; default: those that the log names.",
)
@click.option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    help="GPUs per node; default: as in the log, with --nodes the usual number for the hardware.",
)
@click.option(
    "--fabric",
    callback=_checked_fabric,
    shell_complete=complete.fabrics,
    help="What data between nodes must go over, as in a cluster file: IB-8x400G.",
)
@baseline_option
@json_option
def judge(
    logs: tuple[str, ...],
    hardware: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    fabric: str | None,
    require_baseline: bool,
    as_json: bool,
) -> NoReturn:
    """Judge the LOGS of one run, from any launcher, against reference values for the hardware.

    Hardware, nodes, GPUs per node and fabric are read from the logs; an option fills in what they
    do not say.

    LOGS are files, text or JSON, or folders, of which every file is judged or listed; - is standard
    input. Output of dcgmi, nvbandwidth, perftest, nvidia-smi and training programs may be among
    them. Exit status: 0 pass, 1 degraded, fail or corrupt, 2 bad input, 3 inconclusive or not_run.
    """
    with waiting("reading the logs"):
        from seatrial.logs.cluster import LogsConfig
        from seatrial.logs.judge import judge_logs
        from seatrial.report.judged import show_judged, to_dict

        read, not_judged = _read(logs)
        judged = judge_logs(read, LogsConfig(hardware, nodes, gpus_per_node, fabric))
    if as_json:
        print_json({**to_dict(judged, read), "not_judged": not_judged})
    else:
        show_judged(judged, not_judged, _hints(read))
    status = exit_status(judged.verdict, judged.coverage, require_baseline)
    sys.exit(
        Verdict.INCONCLUSIVE.exit_status
        if require_baseline and not_judged and status == 0
        else status
    )


def _hints(read: "list[Log]") -> list[str]:
    """Return the command to compare logs of parts of a cluster, which a judge of one run does
    not.
    """
    from seatrial.logs.cluster import are_of_parts

    if not are_of_parts([sweep for log in read for sweep in log.sweeps]):
        return []
    return [
        (
            "next: these are tests of parts of a cluster; `seatrial localize LOGS` names the "
            "part that is slow"
        )
    ]


def _read(paths: tuple[str, ...]) -> "tuple[list[Log], list[str]]":
    """Read the logs, each under its shortest unique name, and list the files of folders that hold
    nothing known.

    Raises InputError if none has output that is known.
    """
    from seatrial.logs.judge import Log

    files = [file for path in paths for file in _files(path)]
    stems = [Path(file).stem for file, _ in files]
    read: list[Log] = []
    not_judged: list[str] = []
    nothing: NothingFoundError | None = None
    for (file, is_listed), stem in zip(files, stems, strict=True):
        name = stem if stems.count(stem) == 1 else file
        try:
            read.append(_log(file, name))
        except NothingFoundError as error:
            nothing = error
            if is_listed and ".log" not in Path(file).suffixes:
                not_judged.append(Path(file).name)
            else:
                read.append(Log(name, (), why=error.reason if error.reason.code else None))
    known = (log.parts or (log.why and log.why.code != "log-compressed") for log in read)
    if nothing and not any(known):
        raise nothing
    return read, not_judged


def _log(file: str, name: str) -> "Log":
    """Read one log.

    Raises InputError if it cannot be read, NothingFoundError if it holds nothing known.
    """
    from seatrial.logs.judge import Log
    from seatrial.readers.parts import read_file, read_text

    if Path(file).name == HOSTNAMES and (hosts := _hosts(file)):
        return Log(name, (), hosts)
    parts = read_text(sys.stdin, "standard input", name) if file == "-" else read_file(file, name)
    return Log(name, tuple(parts))


def _hosts(file: str) -> tuple[str, ...]:
    """Return the host names of a file that has one a line; none if it has another line."""
    with Path(file).open(encoding="utf-8", errors="replace") as lines:
        names = [line.strip() for line in islice(lines, _MOST_HOSTS)]
    return (
        tuple(filter(None, names)) if all(_HOST.fullmatch(name) for name in names if name) else ()
    )


def _files(path: str) -> list[tuple[str, bool]]:
    """Return the files below a folder, each marked as listed, else the path itself.

    Raises InputError for a folder without files or with too many.
    """
    if not os.path.isdir(path):
        return [(path, False)]
    below = (
        file for file in Path(path).rglob("*") if not file.name.startswith(".") and file.is_file()
    )
    files = sorted(str(file) for file in islice(below, _MOST_FILES + 1))
    if not files or len(files) > _MOST_FILES:
        raise InputError(f"{printable(path)}: a folder needs 1 to {_MOST_FILES:,} files")
    return [(file, True) for file in files]


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(4, 20_000),
    default=64,
    show_default=True,
    help="Number of nodes, with eight GPUs each.",
)
@click.option(
    "--nights",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Nights that a fault lasts.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="Trials per fault.",
)
@click.option(
    "--healthy",
    type=click.IntRange(0, 100_000),
    default=50,
    show_default=True,
    help="Number of healthy nights.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Random seed; the same seed gives the same numbers.",
)
@click.option(
    "--csv",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the readings of one fleet with a slow node to this file, for `seatrial "
    "replay`, and judge nothing.",
)
@json_option
def simulate(
    nodes: int, nights: int, trials: int, healthy: int, seed: int, file: Path | None, as_json: bool
) -> None:
    """Inject faults into a simulated fleet and score the judge's verdicts and suspects against the
    truth.

    Readings have 3 % noise with heavy tails, nodes differ by 1 %, and every fault follows ten
    healthy nights.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    if file:
        from seatrial.simulate.rows import RUN, fleet_series, make
        from seatrial.simulate.score import NIGHTS_BEFORE, simulated_rows

        fault = make("slow node", "10 %", fleet_series(nodes, RUN), rng)
        rows = simulated_rows(nodes, nights, fault, rng)
        with os_errors_named(str(file)):
            rows.to_csv(file, index=False, float_format="%.6g")
        written = {
            "file": str(file),
            "subject": fault.culprit,
            "size": fault.size,
            "from_run": rows["run_id"].unique()[NIGHTS_BEFORE],
        }
        if as_json:
            print_json(written)
        else:
            slower = (
                "{subject} is {size} slower from {from_run} on. Judge these nights: seatrial "
                "replay {file}"
            )
            click.echo(slower.format(**written))
        return
    from seatrial.simulate.score import judge_healthy, scores, simulated_json, simulated_table

    calm = judge_healthy(nodes, healthy, rng)
    results = list(scores(nodes, nights, trials, rng))
    if as_json:
        print_json(simulated_json(nodes, seed, calm, results))
    else:
        from rich.console import Console

        Console().print(simulated_table(calm, results))
