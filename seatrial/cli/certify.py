"""`seatrial certify`: the acceptance certificate of a cluster."""

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from seatrial.cli import complete
from seatrial.cli.options import FILE, json_option, print_json, waiting


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete.runs)
@click.option(
    "--requirements",
    required=True,
    metavar="NAME|FILE",
    shell_complete=complete.requirements,
    help="Requirements: a shipped name (requirements, clustermax, ...) or a YAML file.",
)
@click.option(
    "--out",
    type=FILE,
    default="certificate",
    show_default=True,
    help="New folder of the certificate.",
)
@click.option(
    "--sign",
    "key",
    type=FILE,
    help="Private SSH key (ssh-keygen -t ed25519) that signs the manifest.",
)
@click.option("--format", "form", type=click.Choice(["html", "pdf"]), default="html", show_default=True,
              help="pdf writes certificate.pdf beside certificate.html.")  # fmt: skip
@json_option
def certify(
    runs: tuple[str, ...], requirements: str, out: Path, key: Path | None, form: str, as_json: bool
) -> NoReturn:
    """Check RUNs against requirements, and write a certificate with the evidence of each, for
    `seatrial verify`.

    The worst number of all RUNs decides; what no RUN has measured is not shown. Exit status: 0 all
    requirements are met or excepted, 1 one is not met, 2 bad input, 3 one is not shown.
    """
    from seatrial.certificate.decide import Status
    from seatrial.certificate.folder import write
    from seatrial.certificate.requirements import find
    from seatrial.runs.login import find_run

    file = find(requirements)
    folders = [find_run(run) for run in runs]
    with waiting("deciding"):
        certificate = write(folders, file, out, key, paper=form == "pdf")
    if as_json:
        print_json(certificate)
    else:
        _show(certificate, out, signed=key is not None)
    sys.exit(Status(certificate["verdict"]).exit_status)


def _show(certificate: dict[str, Any], out: Path, *, signed: bool) -> None:
    """Print a line for each requirement, then `verdict: counts`."""
    from seatrial.text.words import plain, quantity

    for row in certificate["requirements"]:
        measured = row["measured"]
        shown = measured if isinstance(measured, str) else quantity(measured, row["unit"] or "")
        limit = f"{row['limit']} {row['unit'] or ''}".strip()
        value = f"{row['verdict']}: {shown} ({limit})"
        if row["exception"] is not None and row["verdict"] == "excepted":
            value += f"; exception by {row['exception']['name']} until {row['exception']['until']}"
        print(plain(f"{row['id']}: {value}{'; ' if row['reason'] else ''}{row['reason']}"))
    counts = ", ".join(
        f"{count} {verdict}" for verdict, count in certificate["counts"].items() if count
    )
    print(f"{out}: {'signed' if signed else 'not signed'}")
    print(f"{certificate['verdict']}: {counts}")
