"""Nodes before, during and after a run: `render`, `probe`, `status`, `watch`, `reap`, `release`,
`ssh`, and `dial`.
"""

import io
import logging
import os
import platform
import sys
import time
import zipfile
from contextlib import suppress
from modulefinder import ModuleFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from seatrial.cli import complete
from seatrial.cli.options import (
    FILE,
    any_cluster_argument,
    baseline_option,
    close_killed,
    cluster_argument,
    json_option,
    print_json,
    suite_option,
    waiting,
    write_new,
)
from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.result import exit_status
from seatrial.remote import probes
from seatrial.text.printable import printable
from seatrial.text.words import count

if TYPE_CHECKING:
    from seatrial.model.result import RunResult

BY_HAND = ("check", "devices", "collective", "all_reduce", "training", "facts", "inventory", "disk")
# The probes that a probe starts as processes of their own
_STARTED_BY = {"check": ("devices", "collective", "all_reduce", "training", "facts")}
_LOG = Path("logs", "run.log")


def single_file(name: str) -> bytes:
    """Return a zip archive that Python runs as a script; the same bytes each time.

    The archive holds the probe, the probes that it starts, and all probes that these import.
    """
    archive = io.BytesIO(b"#!/usr/bin/env python3\n")
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        start = f'import runpy\nrunpy.run_module("{name}", run_name="__main__", alter_sys=True)\n'
        file.writestr(_entry("__main__.py"), start)
        finder = ModuleFinder([str(probes.probe(name).parent)])  # all else is the machine's
        for root in (name, *_STARTED_BY.get(name, ())):
            finder.import_hook(root)
        for path in probes.PROBES:
            if path.stem in finder.modules:
                file.writestr(_entry(path.name), path.read_text())
    return archive.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


@click.command()
@cluster_argument
@suite_option
@json_option
def render(cluster: Path, suite: str, as_json: bool) -> None:
    """Show what a run of CLUSTER would submit, without submitting it."""
    from seatrial.checks.collectives.sweep import sweep_commands
    from seatrial.checks.suites import load_suite
    from seatrial.config.cluster import load_cluster
    from seatrial.config.run import Run
    from seatrial.platforms import platform_for
    from seatrial.remote.mpi import hostfile, hostfile_path

    loaded = load_cluster(cluster)
    planned = Run("RUN-ID", loaded, load_suite(suite), Path("runs/RUN-ID"))
    rendered = platform_for(loaded, cluster).render(planned)
    files: dict[str, str] = {}
    if loaded.image is not None:
        from seatrial.builders import render_image
        from seatrial.config.architecture import node_architecture

        files |= render_image(loaded.image, node_architecture(loaded, platform.machine()))
    files |= rendered.files
    testbed = rendered.testbed  # where mpirun on the first node starts the sweeps
    if testbed and (commands := sweep_commands(planned, testbed)):
        files[hostfile_path(testbed).rpartition("/")[2]] = hostfile(testbed.nodes)
        files["sweeps.sh"] = "\n".join(commands) + "\n"
    if as_json:
        print_json(files)
    else:
        for name, text in files.items():
            print(f"# --- {name}\n{text}")


@click.command()
@click.argument("name", type=click.Choice(BY_HAND))
@click.option(
    "--out",
    type=FILE,
    help="The file to write; NAME.pyz in the current folder when it is left out.",
)
def probe(name: str, out: Path | None) -> None:
    """Write a measurement as one file that runs where Python and torch are, without seatrial.

    check is a quick check of one machine, as an image runs it without keys. devices measures every
    GPU or the processors, disk a folder, collective sweeps one collective, all_reduce checks every
    element of 50 sums as training makes them, training trains a model, facts lists the hardware and
    software, inventory the state of the hardware. Run it alone, or under torchrun, mpirun or srun.
    """
    file = out or Path(f"{name}.pyz")
    taken = InputError(f"{file}: is there already; remove it, or name another file with --out")
    write_new(file, single_file(name), taken)
    print(f"{file}: python {file} --help")


@click.command()
@any_cluster_argument
@click.option(
    "--run",
    "kept",
    metavar="RUN",
    shell_complete=complete.runs_up,
    help="Remove only this run (id or folder), even if its nodes are kept.",
)
def reap(cluster: Path | None, kept: str | None) -> None:
    """Remove the remains of killed runs, and nodes whose keep time has expired."""
    close_killed()
    with waiting("looking for what runs have left"):
        from seatrial.config.cluster import load_cluster
        from seatrial.platforms import local_platform, platform_for
        from seatrial.tasks.launch import end
        from seatrial.tasks.launch import reap as reap_platform

        if kept:
            print(f"{end(kept, load_cluster(cluster) if cluster else None)}: removed")
            return
        logging.getLogger("seatrial").setLevel(logging.ERROR)  # what is reaped is printed here
        platform = platform_for(load_cluster(cluster), cluster) if cluster else local_platform()
        left = reap_platform(platform)
    for leftover in left:
        print(f"{leftover.run_id}: removed {leftover.what}")
    print(f"{count(len(left), 'run')} reaped")


@click.command()
@cluster_argument
@click.argument("node", shell_complete=complete.nodes_of_cluster)
def release(cluster: Path, node: str) -> None:
    """Put NODE of CLUSTER, a cluster file, back into service, which a run has taken out by the
    field `isolate`.

    Exit status: 2 for a node that seatrial has not isolated.
    """
    from seatrial.config.cluster import load_cluster
    from seatrial.platforms import isolator_for

    if os.path.isfile(node) and not os.path.isfile(cluster):
        raise InputError(f"release: CLUSTER comes before NODE: seatrial release {node} {cluster}")
    isolator_for(load_cluster(cluster)).release(node)
    print(f"{node}: is in service again")


@click.command()
@click.argument("run", metavar="RUN", shell_complete=complete.runs_up)
@click.argument("node", shell_complete=complete.nodes_of_run)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(run: str, node: str, command: tuple[str, ...]) -> None:
    """Open a shell on NODE (a name, an index or head) of RUN (an id or a folder), or run COMMAND
    there.

    The nodes of RUN must be up.

    Exit status: that of ssh, which is the command's; 2 if there is no such run or node.
    """
    from seatrial.runs.login import log_in

    logging.getLogger("seatrial").setLevel(logging.ERROR)
    log_in(run, node, command)


@click.command(hidden=True)
@click.argument("run", metavar="RUN")
@click.argument("node")
def dial(run: str, node: str) -> None:
    """Connect standard input and output to a node's sshd; `seatrial ssh` uses this as
    ProxyCommand.
    """
    from seatrial.runs.login import dial as dial_node

    logging.getLogger("seatrial").setLevel(logging.ERROR)
    dial_node(run, node)


@click.command()
@any_cluster_argument
@json_option
def status(cluster: Path | None, as_json: bool) -> None:
    """List this user's runs whose nodes are up on this machine, or were left behind by a run that
    was killed.

    With CLUSTER, a cluster file: the hour and phase of its newest campaign, and the nodes that were
    left out. With the section `qualify` also the state of its nodes, the age of the last passed
    test of each node, GPU and pair of leaf switches, and the GPU hours that checks took.
    """
    if cluster is not None:
        from seatrial.cli.qualify import show_standing

        show_standing(cluster, as_json=as_json)
        return
    from seatrial.platforms import state as states
    from seatrial.report.terminal import output, table

    killed = {result.run_id: result for result in close_killed()}
    listed = [_standing(run_id, killed.pop(run_id, None)) for run_id in states.run_ids()]
    listed += [
        {"run": result.run_id, "cluster": result.cluster, "state": "over", "now": _verdict(result)}
        for result in killed.values()  # killed runs without nodes left
    ]
    if as_json:
        print_json(listed)
    elif listed:
        console = output()
        console.print(
            table(
                list(listed[0]),
                (list(each.values()) for each in listed),
                console.encoding,
                ("state", "now"),
            )
        )
    else:
        print("no run is up")


def _verdict(result: "RunResult") -> str:
    return f"{result.verdict.value}: {printable(result.reason.sentence)}"


def _standing(run_id: str, killed: "RunResult | None") -> dict[str, Any]:
    """Return the run, its cluster, whether it is at work, and the newest line of its log in runs/,
    or its verdict.
    """
    from seatrial.platforms import state as states
    from seatrial.text.lines import last_line, tail_of

    folder = states.find(run_id)
    if folder is None:  # the run has ended meanwhile
        return {"run": run_id, "cluster": "", "state": "over", "now": ""}
    if states.is_abandoned(folder):
        state = f"left behind: seatrial reap --run {run_id}"
    else:
        state = "at work" if states.is_at_work(folder) else "kept"
    cluster = ""
    now = ""
    with suppress(InputError):  # the run is only just coming up
        cluster = states.recall(folder).name
    with suppress(OSError):  # the run writes to another folder
        now = last_line(tail_of(Path("runs", run_id) / _LOG).decode(errors="replace"))
    return {
        "run": run_id,
        "cluster": cluster,
        "state": state,
        "now": _verdict(killed) if killed else printable(now),
    }


@click.command()
@click.argument("run", metavar="RUN", shell_complete=complete.runs_up)
@baseline_option
def watch(run: str, require_baseline: bool) -> NoReturn:
    """Print the log of RUN (its folder or id) as it grows, until the run is over.

    Exit status: as for `seatrial run`; 3 if its process has gone without a verdict. Ctrl-C ends
    only the watching.
    """
    from seatrial.report.terminal import closing_lines
    from seatrial.runs.login import find_run

    path = find_run(run)
    folder = path if path.is_dir() else path.parent
    if not (folder / _LOG).is_file():
        raise InputError(f"RUN {run}: has no {_LOG}; give the folder that the run writes to")
    result = _followed(folder)
    print(closing_lines(result))
    sys.exit(exit_status(result.verdict, result.coverage, require_baseline))


def _followed(folder: Path) -> "RunResult":
    """Print the log's lines until run.json is there.

    Raises SeatrialError if the run's process has gone.
    """
    from seatrial.platforms import state as states
    from seatrial.runs.load import load_result

    with (folder / _LOG).open(encoding="utf-8", errors="replace") as log:
        while True:
            is_over = (folder / "run.json").exists()  # before the last lines are read
            for line in log:
                print(printable(line.rstrip("\n")), flush=True)
            if is_over:
                return load_result(folder)
            close_killed()
            state = states.find(folder.resolve().name)
            if state and states.is_abandoned(state):
                raise SeatrialError.of("run-abandoned", name=folder.name)
            time.sleep(0.5)
