"""`seatrial render`, `probe`, `reap`, `ssh` and the hidden `dial`: nodes before, during and after a run."""

import logging
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import FILE, cluster_argument, json_option, print_json, suite_option, waiting
from seatrial.model.errors import InputError
from seatrial.remote.single_file import BY_HAND, single_file

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster
    from seatrial.config.run import Run
    from seatrial.model.testbed import Testbed


@click.command()
@cluster_argument
@suite_option
@json_option
def render(cluster: Path, suite: str, as_json: bool) -> None:
    """Show what a run of CLUSTER would submit, without submitting it."""
    from seatrial.checks.suites import load_suite
    from seatrial.config.cluster import load_cluster
    from seatrial.config.run import Run
    from seatrial.platforms import platform_for

    loaded = load_cluster(cluster)
    planned = Run("RUN-ID", loaded, load_suite(suite), Path("runs/RUN-ID"))
    rendered = platform_for(loaded, cluster).render(planned)
    files = {**_rendered_image(loaded), **rendered.files, **_sweeps(planned, rendered.testbed)}
    if as_json:
        print_json(files)
    else:
        for name, text in files.items():
            print(f"# --- {name}\n{text}")


def _sweeps(run: "Run", testbed: "Testbed | None") -> dict[str, str]:
    """The hostfile and the command lines of the sweeps, where mpirun on the first node starts them."""
    from seatrial.checks.collectives.sweep import sweep_commands
    from seatrial.remote.mpi import hostfile, hostfile_path

    commands = sweep_commands(run, testbed) if testbed else []
    if not testbed or not commands:
        return {}
    return {hostfile_path(testbed).rpartition("/")[2]: hostfile(testbed.nodes), "sweeps.sh": "\n".join(commands) + "\n"}


def _rendered_image(cluster: "Cluster") -> dict[str, str]:
    """The image build, if the cluster file has one."""
    if cluster.image is None:
        return {}
    from seatrial.builders import render_image
    from seatrial.config.architecture import node_architecture

    return render_image(cluster.image, node_architecture(cluster, platform.machine()))


@click.command()
@click.argument("name", type=click.Choice(BY_HAND))
@click.option("--out", type=FILE, help="The file to write; NAME.pyz in the current folder when it is left out.")
def probe(name: str, out: Path | None) -> None:
    """Write a measurement as one file that runs where Python and torch are, without seatrial.

    check is a quick check of one machine, as an image runs it without keys. devices measures every GPU or the
    processors, disk a folder, collective sweeps one collective, all_reduce checks every element of 50 sums as training
    makes them, training trains a model, facts lists the hardware and software, inventory the state of the hardware. Run
    it alone, or under torchrun, mpirun or srun.
    """
    file = out or Path(f"{name}.pyz")
    try:
        with file.open("xb") as new:
            new.write(single_file(name))
    except FileExistsError as error:
        raise InputError(f"{file}: is there already; remove it, or name another file with --out") from error
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    print(f"{file}: python {file} --help")


@click.command()
@click.argument("cluster", type=FILE, required=False)
@click.option("--run", "kept", metavar="RUN", help="Remove only this run (id or folder), even if its nodes are kept.")
def reap(cluster: Path | None, kept: str | None) -> None:
    """Remove the remains of killed runs, and nodes whose keep time has expired."""
    with waiting("looking for what runs have left"):
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


@click.command()
@click.argument("node")
@cluster_argument
def release(node: str, cluster: Path) -> None:
    """Put NODE of CLUSTER back into service, which a run has taken out by the field `isolate`.

    Exit status: 2 for a node that seatrial has not isolated.
    """
    from seatrial.config.cluster import load_cluster
    from seatrial.platforms import isolator_for

    isolator_for(load_cluster(cluster)).release(node)
    print(f"{node}: is in service again")


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(run: str, node: str, command: tuple[str, ...]) -> None:
    """Open a shell on NODE (a name, an index or head) of RUN (an id or a folder), or run COMMAND there.

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
    """Connect standard input and output to a node's sshd; `seatrial ssh` uses this as ProxyCommand."""
    from seatrial.runs.login import dial as dial_node

    logging.getLogger("seatrial").setLevel(logging.ERROR)
    dial_node(run, node)
