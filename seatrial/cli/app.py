"""The command `seatrial`. Everything heavy is imported inside the command that needs it."""

import gc
import io
import logging
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial import __version__
from seatrial.cli.baseline import baseline
from seatrial.cli.compare import compare
from seatrial.cli.judge import judge
from seatrial.cli.options import FILE, json_option, name_of, print_json
from seatrial.cli.pinned import diff, expire, promote, show
from seatrial.cli.rejudge import rejudge
from seatrial.cli.report import bundle, report, verify
from seatrial.cli.serve import serve
from seatrial.cli.simulate import simulate
from seatrial.model.errors import InputError, NothingFoundError, SeatrialError
from seatrial.system.state_home import name_a_home

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

cluster_argument = click.argument("cluster", type=FILE)
suite_option = click.option(
    "--suite", default="quick", show_default=True, help="quick, nightly, acceptance, or the path of a suite file."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="seatrial")
def app() -> None:
    """Sea trials for GPU clusters: image, nodes, MPI, collectives, training, verdict."""


for command in (judge, rejudge, baseline, compare, simulate, report, bundle, verify, serve):
    app.add_command(command)
for command in (promote, show, diff, expire):
    baseline.add_command(command)


@app.command()
@cluster_argument
@suite_option
@click.option("--out", type=FILE, help="Folder to write to; runs/RUN_ID when not given.")
@click.option(
    "--notify/--no-notify", default=True, show_default=True, help="Tell people what is new, where it is configured."
)
@click.option("--rebuild", is_flag=True, help="Build the image also when nothing that it is made of has changed.")
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages.")
def run(
    cluster: Path, suite: str, out: Path | None, notify: bool, rebuild: bool, as_json: bool, verbose: bool
) -> NoReturn:
    """Take CLUSTER through the whole chain; the last line is verdict and reason.

    Exit status: 0 pass, 1 degraded, fail or corrupt, 2 bad input, 3 inconclusive or not_run.
    """
    from seatrial.cli.run import run_by_hand

    sys.exit(run_by_hand(cluster, suite, out, notify=notify, rebuild=rebuild, as_json=as_json, verbose=verbose))


@app.command()
@cluster_argument
@suite_option
@json_option
def render(cluster: Path, suite: str, as_json: bool) -> None:
    """Show what would be submitted for CLUSTER; changes nothing."""
    from seatrial.config.cluster import load_cluster
    from seatrial.config.run import Run
    from seatrial.config.suite import load_suite
    from seatrial.platforms import platform_for

    wanted = load_cluster(cluster)
    planned = Run("RUN-ID", wanted, load_suite(suite), Path("runs/RUN-ID"))
    files = {**_rendered_image(wanted), **platform_for(wanted, cluster).render(planned).files}
    if as_json:
        print_json(files)
    else:
        for name, text in files.items():
            print(f"# --- {name}\n{text}")


def _rendered_image(cluster: "Cluster") -> dict[str, str]:
    """What would be built, where the cluster file says so."""
    if cluster.image is None:
        return {}
    from seatrial.builders import render_image
    from seatrial.config.architecture import node_architecture

    return render_image(cluster.image, node_architecture(cluster, platform.machine()))


@app.command()
@click.argument("logs", nargs=-1, required=True)
@json_option
def parse(logs: tuple[str, ...], as_json: bool) -> None:
    """Read nccl-tests output of any version, with any prefix, as tidy rows.

    LOGS are files, text or JSON; - is standard input. Exit status 2 when one of them holds nothing of the kind.
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
        print_json([sweep.to_dict() for sweeps in by_log.values() for sweep in sweeps])
    else:
        for log, sweeps in by_log.items():
            print(f"{log}\n{render(sweeps)}")
    if nothing:
        raise nothing


@app.command()
@click.argument("cluster", type=FILE, required=False)
def doctor(cluster: Path | None) -> NoReturn:
    """Say what this machine lacks, each with the next step."""
    from seatrial.cli.doctor import diagnose

    sys.exit(diagnose(cluster))


@app.command()
@click.argument("cluster", type=FILE, required=False)
@click.option("--run", "kept", metavar="RUN", help="Only this run, also while its nodes are kept: an id or a folder.")
def reap(cluster: Path | None, kept: str | None) -> None:
    """Remove what runs whose process is gone, or that were kept for long enough, have left behind."""
    from seatrial.config.cluster import load_cluster
    from seatrial.platforms import platform_for, platforms
    from tasks.launch import end
    from tasks.launch import reap as reap_platform

    if kept:
        print(f"{end(kept, load_cluster(cluster) if cluster else None)}: removed")
        return

    logging.getLogger("seatrial").setLevel(logging.ERROR)  # what is reaped is printed here
    chosen = [platform_for(load_cluster(cluster), cluster)] if cluster else list(platforms().values())
    left = [leftover for platform in chosen for leftover in reap_platform(platform)]
    for leftover in left:
        print(f"{leftover.run_id}: removed {leftover.what}")
    print(f"{len(left)} run{'' if len(left) == 1 else 's'} reaped")


@app.command()
@click.argument("run_word", metavar="RUN")
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(run_word: str, node: str, command: tuple[str, ...]) -> None:
    """Log in to NODE (a name, an index or head) of RUN (an id or a folder), which is up; or run a COMMAND there.

    Exit status: the command's, as ssh has it; 2 where there is no such run or node.
    """
    from seatrial.runs.login import log_in

    logging.getLogger("seatrial").setLevel(logging.ERROR)
    log_in(run_word, node, command)


@app.command(hidden=True)
@click.argument("run_word", metavar="RUN")
@click.argument("node")
def dial(run_word: str, node: str) -> None:
    """Standard input and output as a connection to a node's sshd: what `seatrial ssh` gives to ssh."""
    from seatrial.runs.login import dial as dial_node

    logging.getLogger("seatrial").setLevel(logging.ERROR)
    dial_node(run_word, node)


@app.command()
@click.argument("cluster", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="How many, newest first."
)
@json_option
def history(cluster: str | None, limit: int, as_json: bool) -> None:
    """List earlier runs, all or those of CLUSTER (a name or a cluster file), and what they came to."""
    from seatrial.history import open_store
    from seatrial.report.earlier_runs import history_json, show_history

    cluster = cluster and name_of(cluster)
    with open_store() as store:
        rows = store.runs(cluster, limit)
        known = sorted({row.cluster for row in store.runs(None, 1000)}) if cluster and not rows else []
    if known:
        raise InputError(f"history: no runs of cluster {cluster!r}; known: {', '.join(known)}")
    if as_json:
        print_json(history_json(rows))
    else:
        show_history(rows)


def main() -> NoReturn:
    """Run the command line; every error that is meant for people is one line on standard error."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # looking for them among all packages takes a while
    name_a_home()
    gc.set_threshold(50_000)  # importing makes many objects and no garbage; looking for some takes a tenth of the start
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # its causes come to us as exceptions
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names and logs hold what a terminal's encoding has not
    try:
        sys.exit(app.main(prog_name="seatrial", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:  # an unknown option, a missing argument
        sys.exit(_complain(_with_help(error), 2))
    except click.Abort:  # Ctrl-C where nothing is up
        sys.exit(130)
    except InputError as error:
        sys.exit(_complain(error, 2))
    except SeatrialError as error:  # not the cluster's fault, so not 1
        sys.exit(_complain(error, 3))
    except OSError as error:  # a full disk, a terminal or the end of a pipe that has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered cannot be written at exit either
        sys.exit(_complain(error, 3))


def _with_help(error: click.ClickException) -> str:
    """What click says, and where to read what is legal."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    said = error.format_message().removesuffix(".")
    return f"{said}; see {context.command_path} --help" if context else said


def _complain(error: Exception | str, status: int) -> int:
    """On one line, without control characters: it may name what somebody else has named."""
    from seatrial.text.words import plain

    print(f"seatrial: {plain(error)}", file=sys.stderr)
    return status
