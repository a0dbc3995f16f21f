"""`seatrial probe`: a measurement as one file, to copy to a machine without seatrial."""

from pathlib import Path

import click

from seatrial.cli.options import FILE
from seatrial.model.errors import InputError
from seatrial.remote.single_file import BY_HAND, single_file


@click.command()
@click.argument("name", type=click.Choice(BY_HAND))
@click.option("--out", type=FILE, help="The file to write; NAME.pyz in the current folder when it is left out.")
def probe(name: str, out: Path | None) -> None:
    """Write a measurement as one file that runs where Python and torch are, without seatrial.

    check is a quick check of one machine, as an image runs it without keys. devices measures every GPU or the
    processors, disk a folder, collective sweeps one collective, all_reduce checks every element of 50 sums as training
    makes them, training trains a model, facts tells what the machine is made of, inventory in which state that is. Run
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
