"""The command `seatrial`. Everything heavy is imported inside the command that needs it."""

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from seatrial.errors import InputError, MissingError, SeatrialError

app = typer.Typer(
    name="seatrial",
    help="Sea trials for GPU clusters: image, nodes, MPI, collectives, training, verdict.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ClusterFile = Annotated[Path, typer.Argument(help="The cluster file, such as deployments/clusters/local.yaml.")]
SuiteName = Annotated[str, typer.Option(help="quick, nightly, acceptance, or the path of a suite file.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else there.")
]


@app.command()
def run(
    cluster: ClusterFile,
    suite: SuiteName = "quick",
    out: Annotated[Path | None, typer.Option(help="Folder to write to; runs/RUN_ID when not given.")] = None,
    notify: Annotated[bool, typer.Option("--notify/--no-notify", help="Tell Slack, where it is configured.")] = True,
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show debug messages.")] = False,
) -> None:
    """Take a cluster through the whole chain; the last line is verdict and reason."""
    from seatrial.console import run_by_hand

    raise typer.Exit(run_by_hand(cluster, suite, out, notify=notify, as_json=as_json, verbose=verbose))


@app.command()
def render(cluster: ClusterFile, suite: SuiteName = "quick", as_json: AsJson = False) -> None:
    """Show what would be submitted; changes nothing."""
    from seatrial.cluster import load_cluster
    from seatrial.platforms import platform_for
    from seatrial.run import Run
    from seatrial.suite import load_suite

    wanted = load_cluster(cluster)
    planned = Run("RUN-ID", wanted, load_suite(suite), Path("runs/RUN-ID"))
    files = platform_for(wanted).render(planned).files
    if as_json:
        _print_json(dict(files))
    else:
        for name, text in files.items():
            print(f"# --- {name}\n{text}")


@app.command()
def parse(
    logs: Annotated[list[str], typer.Argument(help="nccl-tests output, text or JSON; - is standard input.")],
    as_json: AsJson = False,
) -> None:
    """Read nccl-tests output of any version, with any prefix, as tidy rows."""
    from seatrial.nccl import file_outcome, parse_file, parse_lines, render

    by_log = {
        log: parse_lines(sys.stdin, source="standard input") if log == "-" else parse_file(Path(log)) for log in logs
    }
    if as_json:
        _print_json([sweep.to_dict() for sweeps in by_log.values() for sweep in sweeps])
    else:
        for log, sweeps in by_log.items():
            print(f"{log}\n{render(sweeps)}")
    raise typer.Exit(max(0 if file_outcome(sweeps) == "ok" else 1 for sweeps in by_log.values()))


@app.command()
def doctor(cluster: Annotated[Path | None, typer.Argument(help="Check for this cluster file too.")] = None) -> None:
    """Say what this machine lacks, each with the next step."""
    from seatrial.doctor import diagnose

    raise typer.Exit(diagnose(cluster))


@app.command()
def reap(cluster: Annotated[Path | None, typer.Argument(help="Only this cluster's platform.")] = None) -> None:
    """Remove what runs whose process is gone have left behind."""
    from seatrial.cluster import load_cluster
    from seatrial.platforms import platform_for, platforms
    from tasks.launch import reap as reap_platform

    chosen = [platform_for(load_cluster(cluster))] if cluster else list(platforms().values())
    left = [leftover for platform in chosen for leftover in reap_platform(platform)]
    for leftover in left:
        print(f"{leftover.run_id}: removed {leftover.what}")
    print(f"{len(left)} run{'' if len(left) == 1 else 's'} reaped")


@app.command()
def history(
    cluster: Annotated[str | None, typer.Argument(help="Only this cluster's runs.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List earlier runs and what they came to."""
    from seatrial.history import open_store
    from seatrial.history_view import history_json, history_table

    with open_store() as store:
        rows = store.runs(cluster, limit)
    if as_json:
        _print_json(history_json(rows))
    else:
        from rich.console import Console

        Console().print(history_table(rows))


@app.command()
def report(run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or its run.json.")]) -> None:
    """Write report.html anew from a run's run.json."""
    from seatrial.report.html import report_html
    from seatrial.report.load import load_result

    result = load_result(run_folder)
    target = (run_folder if run_folder.is_dir() else run_folder.parent) / "report.html"
    try:
        target.write_text(report_html(result), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error
    print(target)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


def main() -> NoReturn:
    """Run the command line; every error that is meant for people is one line on standard error."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # its causes come to us as exceptions
    try:
        app()
        status = 0
    except InputError as error:
        status = _complain(error, 2)
    except MissingError as error:
        status = _complain(error, 3)
    except SeatrialError as error:
        status = _complain(error, 1)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; Python would complain about that at exit
        status = 1
    sys.exit(status)


def _complain(error: SeatrialError, status: int) -> int:
    print(f"seatrial: {' '.join(str(error).split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
