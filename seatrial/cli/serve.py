"""`seatrial serve`: the check on a schedule, on one machine."""

from pathlib import Path

import click

from seatrial.cli.options import FILE
from seatrial.model.errors import InputError

_EXAMPLE = Path("deployments/clusters/local.yaml")


@click.command()
@click.argument("clusters", metavar="[CLUSTER]...", nargs=-1, type=FILE)
@click.option("--suite", default="nightly", show_default=True, help="What runs at night: a suite's name or file.")
@click.option("--cron", default="0 2 * * *", show_default=True, help="When: minute, hour, day, month, weekday.")
@click.option("--timezone", help="Whose clock that is; this machine's when not given.  [example: Europe/Berlin]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; who reaches it, is in.")
@click.option("--port", default=4200, show_default=True, type=click.IntRange(1, 65535), help="For UI and API.")
def serve(clusters: tuple[Path, ...], suite: str, cron: str, timezone: str | None, host: str, port: int) -> None:
    """Check CLUSTERs every night: Prefect server, UI, schedule and runner, until Ctrl-C.

    CLUSTERs are cluster files; deployments/clusters/local.yaml when none is given. Runs write to runs/ here. The same
    command starts it again where it was.
    """
    from flows.serving.serve import serve as serve_site
    from flows.serving.site import Site, local_timezone

    if not clusters and not _EXAMPLE.exists():
        raise InputError("no CLUSTER given, and there is no deployments/clusters/local.yaml here; name a cluster file")
    files = tuple(dict.fromkeys(str(file.absolute()) for file in clusters or (_EXAMPLE,)))
    chosen = str(Path(suite).absolute()) if Path(suite).suffix in (".yaml", ".yml") else suite
    serve_site(Site(files, chosen, cron, timezone or local_timezone()), host, port)
