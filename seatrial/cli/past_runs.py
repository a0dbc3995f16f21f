"""Commands on runs that are over: history, compare, rejudge, replay, report, bundle and verify."""

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.certificate import CERTIFICATE
from seatrial.cli import complete
from seatrial.cli.options import (
    FILE,
    baseline_option,
    close_killed,
    csv_option,
    json_option,
    name_of,
    print_csv,
    print_json,
    run_argument,
)
from seatrial.model.errors import InputError, SeatrialError, os_errors_named
from seatrial.model.result import exit_status

if TYPE_CHECKING:
    from seatrial.model.result import RunResult
    from seatrial.report.context import ReportContext


@click.command()
@click.argument("cluster", required=False, shell_complete=complete.clusters)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    help="Number of runs, newest first.",
)
@click.option(
    "--links",
    is_flag=True,
    help="Show when each link between two nodes of CLUSTER was last measured.",
)
@csv_option
@json_option
def history(cluster: str | None, limit: int, links: bool, as_csv: bool, as_json: bool) -> None:
    """List earlier runs, all or those of CLUSTER (a name or a cluster file), with their
    verdicts.
    """
    from seatrial.history import open_store
    from seatrial.report.listings import history_frame, history_json, show_history

    close_killed()
    cluster = cluster and name_of(cluster)
    if links and not cluster:
        raise InputError("history: --links needs a CLUSTER: a name or a cluster file")
    with open_store() as store:
        rows = store.runs(cluster, 1 if links else limit)
        if cluster and not rows:
            recorded = ", ".join(sorted({row.cluster for row in store.runs(None, 1000)})) or "none"
            raise InputError(
                f"history: no runs of cluster {cluster!r}; clusters with runs: {recorded}"
            )
        if links and rows:
            newest = rows[0]
            from seatrial.report.listings import link_ages, link_ages_json, show_link_ages

            nodes = store.hardware([newest.run_id]).get(newest.run_id, {})
            ages = link_ages(newest, nodes, store.measured(newest.cluster, "link"))
            if as_json:
                print_json(link_ages_json(newest, len(nodes), ages))
            elif as_csv:
                print_csv(ages)
            else:
                show_link_ages(newest, len(nodes), ages)
            return
    if as_json:
        print_json(history_json(rows))
    elif as_csv:
        print_csv(history_frame(rows))
    else:
        show_history(rows)


@click.command()
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True, shell_complete=complete.runs)
@click.option(
    "--fail-on-change",
    is_flag=True,
    help="Exit with 1 if a verdict differs, or a number by more than runs of a healthy cluster do.",
)
@csv_option
@json_option
def compare(runs: tuple[str, ...], fail_on_change: bool, as_csv: bool, as_json: bool) -> NoReturn:
    """Show what changed between RUNs: verdicts, software, and measurements that moved beyond their
    noise.

    A RUN is a run's folder, its run.json, or its id in the history. Each of several is compared
    with the first, and --json prints a list.
    """
    from seatrial.report.terminal import show_difference
    from seatrial.runs.difference import difference, moves
    from seatrial.runs.login import run_of

    if len(runs) < 2:
        raise InputError("compare: needs two RUNs or more")
    first, *others = map(run_of, runs)
    changes = [difference(first, other) for other in others]
    if as_json:
        documents = [each.to_dict() for each in changes]
        print_json(documents if len(documents) > 1 else documents[0])
    elif as_csv:
        print_csv(moves(changes))
    else:
        for number, each in enumerate(changes):
            print("\n" if number else "", end="")
            show_difference(each)
    sys.exit(int(fail_on_change and any(each.is_change for each in changes)))


@click.command()
@run_argument
@baseline_option
@json_option
def rejudge(run: str, require_baseline: bool, as_json: bool) -> NoReturn:
    """Judge RUN again with the current rules and pinned baselines and the runs before it.

    Changes nothing.

    RUN is an id of `seatrial history`, a run's folder, or its run.json. Exit status: as for
    `seatrial run`.
    """
    from seatrial.history import open_store
    from seatrial.runs.login import run_of
    from seatrial.runs.rejudge import rejudge as judge_by_current_rules

    was = run_of(run)
    with open_store() as store:
        now = judge_by_current_rules(was, store)
    if as_json:
        print_json(now.to_dict())
    else:
        _show(was, now)
    sys.exit(exit_status(now.verdict, now.coverage, require_baseline))


def _show(was: "RunResult", now: "RunResult") -> None:
    """Print the earlier verdict, each check, and the closing lines, `verdict: reason` as the
    last.
    """
    from seatrial.report.terminal import closing_lines
    from seatrial.text.headline import lines
    from seatrial.text.words import plain

    print(plain(f"{was.run_id} was {lines(was)[0]}"))
    for old, new in zip(was.checks, now.checks, strict=True):
        before = "" if old.verdict is new.verdict else f" (was {old.verdict.value})"
        print(plain(f"{new.name}: {new.verdict.value}{before}: {new.reason}"))
    print(closing_lines(now))


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def replay(file: Path, as_json: bool) -> None:
    """Judge the runs in FILE one after the other, each by the runs before it.

    FILE is CSV with one row for each reading, as in measurements.csv: run_id, metric, subject_kind,
    subject, value and unit, and optionally started, cluster, suite, check, better, model, driver,
    clock; any other column is a condition. Several rows of one series in a run are its readings in
    order; the judge takes the later ones only if it would have measured again. Exit status: 0
    whatever the verdicts, 2 for a file that cannot be read.
    """
    from seatrial.runs.replay import replay
    from seatrial.runs.replay_rows import read_rows
    from seatrial.text.words import plain

    runs = replay(read_rows(file))
    if as_json:
        print_json([run.to_dict() for run in runs])
    else:
        for run in runs:
            print(plain(f"{run.run_id}: {run.verdict.value}: {run.reason}"))


@click.command()
@run_argument
@click.option(
    "--format", "form", type=click.Choice(["html", "pdf", "md", "json"]), default="html", show_default=True,
    help="html and pdf are written beside run.json; md and json go to standard output.",
)  # fmt: skip
def report(run: str, form: str) -> None:
    """Write the report of RUN (its folder, run.json or id) again, with the current history."""
    result, folder = _load(run)
    if form == "md":
        from seatrial.report.markdown import report_markdown

        print(report_markdown(result, _context(result, folder)), end="")
    elif form == "json":
        from seatrial.report.markdown import report_json

        print_json(report_json(result, _context(result, folder)))
    else:
        print(_write(result, folder, form))


@click.command()
@run_argument
@click.option("--out", type=FILE, help="Output file; default: seatrial-RUN_ID.tar.gz.")
@click.option(
    "--sign",
    "key",
    type=FILE,
    help="Private SSH key (ssh-keygen -t ed25519) that signs the manifest.",
)
@json_option
def bundle(run: str, out: Path | None, key: Path | None, as_json: bool) -> None:
    """Pack RUN for a hand-over: result, measurements, report and raw logs, with a manifest of
    checksums.
    """
    from seatrial.bundle.pack import pack

    result, folder = _load(run)
    if not (folder / "report.html").exists():
        _write(result, folder, "html")
    target = out or Path(f"seatrial-{result.run_id}.tar.gz")
    names = pack(result, folder, target, key)
    if as_json:
        print_json(
            {"run_id": result.run_id, "bundle": str(target), "files": names, "signed": bool(key)}
        )
    else:
        print(f"{target}: {len(names)} files, {'signed' if key else 'not signed'}")


@click.command()
@click.argument("bundle_file", metavar="BUNDLE|CERTIFICATE", type=FILE)
@click.option("--key", type=FILE, help="The signer's public SSH key.")
@click.option("--allowed-signers", type=FILE, help="Allowed signers file, see ssh-keygen(1).")
@json_option
def verify(
    bundle_file: Path, key: Path | None, allowed_signers: Path | None, as_json: bool
) -> NoReturn:
    """Verify that BUNDLE, an archive or its folder, is unchanged, and show who signed it.

    Does not unpack it.

    The folder of a certificate must also follow from its own evidence: it is decided anew.

    Exit status: 0 unchanged, 1 changed (names the first change), 2 bad input.
    """
    from seatrial.bundle.pack import TrustedSigners
    from seatrial.bundle.verify import verify as verify_bundle
    from seatrial.text.words import plain

    if key and allowed_signers:
        raise InputError("--key, --allowed-signers: give one of them")
    trusted = TrustedSigners(key, allowed_signers)
    verified = verify_bundle(bundle_file, trusted)
    if not verified.problem and (bundle_file / CERTIFICATE).is_file():
        from seatrial.certificate.folder import follows

        verified = replace(verified, problem=follows(bundle_file))
    if as_json:
        print_json(
            {
                "bundle": str(bundle_file),
                **asdict(verified),
                "trusted": bool(verified.by and trusted),
            }
        )
    elif verified.problem:  # its names of files are the packer's
        print(f"{bundle_file}: tampered with or damaged: {plain(verified.problem)}")
    else:
        signer = (
            f"signed by {verified.by}"
            if verified.by
            else "not signed, so their origin is not known"
        )
        if verified.by and not trusted:
            signer += ", which is not verified: give --key or --allowed-signers"
        print(f"{bundle_file}: {verified.files} files are unchanged; {plain(signer)}")
    sys.exit(1 if verified.problem else 0)


def _load(run: str) -> "tuple[RunResult, Path]":
    """Return the run and its folder. Raises InputError."""
    from seatrial.runs.load import load_result
    from seatrial.runs.login import find_run

    path = find_run(run)
    return load_result(path), path if path.is_dir() else path.parent


def _context(result: "RunResult", folder: Path) -> "ReportContext":
    """Return the context of the report, without a history that cannot be opened."""
    from seatrial.history import open_store
    from seatrial.report.context import context_of

    try:
        with open_store() as store:
            return context_of(result, folder, store)
    except SeatrialError:
        return context_of(result, folder)


def _write(result: "RunResult", folder: Path, form: str) -> Path:
    """Write report.html or report.pdf beside run.json."""
    from seatrial.report.html import report_html
    from seatrial.report.paper import pdf_of
    from seatrial.system.private import write_atomic

    html = report_html(result, _context(result, folder))
    target = folder / f"report.{form}"
    with os_errors_named(f"{target}: cannot be written"):
        return write_atomic(target, pdf_of(html) if form == "pdf" else html)
