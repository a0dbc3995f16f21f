"""`seatrial report`, `bundle` and `verify`: a run for those who have to read it, or to believe it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli.options import FILE, print_json
from seatrial.model.errors import InputError, SeatrialError

if TYPE_CHECKING:
    from seatrial.model.result import RunResult
    from seatrial.report.context import ReportContext

run_argument = click.argument("run_word", metavar="RUN")


@click.command()
@run_argument
@click.option(
    "--format", "form", type=click.Choice(["html", "pdf", "md", "json"]), default="html", show_default=True,
    help="html and pdf are written beside run.json; md and json go to standard output.",
)  # fmt: skip
def report(run_word: str, form: str) -> None:
    """Write the report of RUN (its folder, run.json or id) again, with the current history."""
    result, folder = _load(run_word)
    if form == "md":
        from seatrial.report.markdown import report_markdown

        print(report_markdown(result, _context(result, folder)), end="")
    elif form == "json":
        from seatrial.report.document import report_json

        print_json(report_json(result, _context(result, folder)))
    else:
        print(_write(result, folder, form))


@click.command()
@run_argument
@click.option("--out", type=FILE, help="Output file; default: seatrial-RUN_ID.tar.gz.")
@click.option("--sign", "key", type=FILE, help="Private SSH key (ssh-keygen -t ed25519) that signs the manifest.")
def bundle(run_word: str, out: Path | None, key: Path | None) -> None:
    """Pack RUN for a hand-over: result, measurements, report and raw logs, with a manifest of checksums."""
    from seatrial.bundle.pack import pack

    result, folder = _load(run_word)
    if not (folder / "report.html").exists():
        _write(result, folder, "html")
    target = out or Path(f"seatrial-{result.run_id}.tar.gz")
    names = pack(result, folder, target, key)
    print(f"{target}: {len(names)} files, {'signed' if key else 'not signed'}")


@click.command()
@click.argument("bundle_file", metavar="BUNDLE", type=FILE)
@click.option("--key", type=FILE, help="The signer's public SSH key.")
@click.option("--allowed-signers", type=FILE, help="Allowed signers file, see ssh-keygen(1).")
def verify(bundle_file: Path, key: Path | None, allowed_signers: Path | None) -> NoReturn:
    """Verify that BUNDLE is unchanged, and show who signed it. Does not unpack it.

    Exit status: 0 unchanged, 1 changed (names the first change), 2 bad input.
    """
    from seatrial.bundle.pack import TrustedSigners
    from seatrial.bundle.verify import verify as verify_bundle
    from seatrial.text.words import plain

    if key and allowed_signers:
        raise InputError("--key, --allowed-signers: give one of them")
    trusted = TrustedSigners(key, allowed_signers)
    verified = verify_bundle(bundle_file, trusted)
    if verified.problem:  # it names files as whoever packed them did
        print(f"{bundle_file}: tampered with or damaged: {plain(verified.problem)}")
        sys.exit(1)
    print(f"{bundle_file}: {verified.files} files are unchanged; {plain(_signer(verified.by, bool(trusted)))}")
    sys.exit(0)


def _signer(by: str, trusted: bool) -> str:
    if not by:
        return "not signed, so their origin is not known"
    return f"signed by {by}" if trusted else f"signed by {by}, which is not verified: give --key or --allowed-signers"


def _load(run_word: str) -> "tuple[RunResult, Path]":
    """The run and its folder. Raises InputError."""
    from seatrial.runs.load import load_result
    from seatrial.runs.login import find_run

    path = find_run(run_word)
    return load_result(path), path if path.is_dir() else path.parent


def _context(result: "RunResult", folder: Path) -> "ReportContext":
    """A history that cannot be opened is said in the report."""
    from seatrial.history import open_store
    from seatrial.report.context import context_of

    try:
        with open_store() as store:
            return context_of(result, folder, store)
    except SeatrialError:
        return context_of(result, folder)


def _write(result: "RunResult", folder: Path, form: str) -> Path:
    """report.html or report.pdf beside run.json."""
    from seatrial.report.html import report_html
    from seatrial.report.paper import pdf_of
    from seatrial.system.atomic import write_atomic

    html = report_html(result, _context(result, folder))
    target = folder / f"report.{form}"
    try:
        return write_atomic(target, pdf_of(html) if form == "pdf" else html)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error
