"""`seatrial serve`: the check on a schedule, on one machine."""

from pathlib import Path

import click

from seatrial.cli.options import FILE
from seatrial.model.errors import InputError

_EXAMPLE = Path("deployments/clusters/local.yaml")


@click.command()
@click.argument("clusters", metavar="[CLUSTER]...", nargs=-1, type=FILE)
@click.option("--suite", default="nightly", show_default=True, help="Suite to run: a name or a suite file.")
@click.option("--cron", default="0 2 * * *", show_default=True, help="Schedule: minute, hour, day, month, weekday.")
@click.option("--timezone", help="Time zone of the schedule, for example Europe/Berlin; default: this machine's.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=4200, show_default=True, type=click.IntRange(1, 65535), help="Port of UI and API.")
def serve(clusters: tuple[Path, ...], suite: str, cron: str, timezone: str | None, host: str, port: int) -> None:
    """Check CLUSTERs on a schedule, until Ctrl-C: starts Prefect server, UI and runner.

    CLUSTERs are cluster files; default: deployments/clusters/local.yaml. Runs write to runs/ in the current folder. The
    same command resumes after a restart.
    """
    from flows.serving.serve import serve as serve_site
    from flows.serving.site import ServeConfig, local_timezone

    if not clusters and not _EXAMPLE.exists():
        raise InputError("no CLUSTER given, and there is no deployments/clusters/local.yaml here; name a cluster file")
    files = tuple(dict.fromkeys(str(file.absolute()) for file in clusters or (_EXAMPLE,)))
    chosen = str(Path(suite).absolute()) if Path(suite).suffix in (".yaml", ".yml") else suite
    serve_site(ServeConfig(files, chosen, cron, timezone or local_timezone()), host, port)
