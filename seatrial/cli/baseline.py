"""`seatrial baseline`: the catalog of reference values, and pinned baselines."""

import getpass
import os
from dataclasses import asdict

import click

from seatrial.cli import complete
from seatrial.cli.options import json_option, name_of, print_json, run_argument
from seatrial.model.errors import InputError


@click.group()
def baseline() -> None:
    """Show and approve the reference values that measurements are compared with."""


@baseline.command("list")
@click.option("--hardware", shell_complete=complete.hardware, help="Show only this hardware.")
@click.option(
    "--fabrics", is_flag=True, help="List the names of fabrics instead, with GB/s of a node."
)
@json_option
def list_catalog(hardware: str | None, fabrics: bool, as_json: bool) -> None:
    """List the catalog of published values that ships with seatrial, each with its kind and
    source.
    """
    from seatrial.catalog import listed
    from seatrial.report.listings import show_catalog

    if fabrics:
        _list_fabrics(as_json)
        return
    rows = listed(hardware)
    if as_json:
        print_json(asdict(rows))  # rows as in the shipped tables
    else:
        show_catalog(rows)


def _list_fabrics(as_json: bool) -> None:
    from seatrial.catalog import known_fabrics

    if as_json:
        print_json(
            [{"fabric": name, "node_link_gb_s": rate} for name, rate in known_fabrics().items()]
        )
        return
    for name, rate in known_fabrics().items():
        print(f"{name:<16} {f'{rate:g} GB/s' if rate else ''}".rstrip())
    print(
        "or KIND-NICSxRATEG with the Gb/s of a NIC, such as IB-8x200G, RoCE-4x400G, Ethernet-1x100G"
    )


@baseline.command()
@run_argument
@click.option("--note", default="", help="Reason for the approval, stored with it.")
@click.option(
    "--force",
    metavar="REASON",
    default="",
    help="Approve a run that would be refused; stores the reason.",
)
def promote(run: str, note: str, force: str) -> None:
    """Approve the measurements of RUN (its id, folder or run.json) as pinned baselines of its
    cluster.

    A run that did not pass, or whose numbers rest on fewer than three passing runs, is refused
    unless --force is given.
    """
    from seatrial.history import open_store
    from seatrial.model.result import now
    from seatrial.runs.approve import Approval
    from seatrial.runs.approve import promote as approve
    from seatrial.runs.login import id_of

    run_id = id_of(run)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user has no name; an OSError since Python 3.13
        user = f"uid {os.getuid()}"
    with open_store() as store:
        pins = approve(store, run_id, Approval(user, now(), note, force))
    print(f"{run_id}: {len(pins)} baselines pinned; `seatrial baseline expire` removes them")


@baseline.command()
@click.argument("cluster", shell_complete=complete.clusters)
@json_option
def show(cluster: str, as_json: bool) -> None:
    """Show the pinned baselines of CLUSTER (a name or a cluster file): who approved them, when,
    from which run.
    """
    from seatrial.history import open_store
    from seatrial.report.listings import pins_json, show_pins

    cluster = name_of(cluster)
    with open_store() as store:
        pins = store.pinned(cluster)
    if as_json:
        print_json(pins_json(pins))
    elif pins:
        show_pins(pins.values())
    else:
        print(f"no pinned baselines for {cluster}")


@baseline.command()
@run_argument
@json_option
def diff(run: str, as_json: bool) -> None:
    """Compare RUN (its id, folder or run.json) with the pinned baselines of its cluster, largest
    deviation first.
    """
    from seatrial.history import open_store
    from seatrial.report.listings import differences_json, show_differences
    from seatrial.runs.approve import differences, stored_run
    from seatrial.runs.login import id_of

    run_id = id_of(run)
    with open_store() as store:
        cluster = stored_run(store, run_id).cluster
        rows = differences(store.pinned(cluster), store.measurements(run_id))
    if as_json:
        print_json(differences_json(rows))
    elif rows:
        show_differences(rows)
    else:
        print(f"no pinned baselines for {cluster}")


@baseline.command()
@click.argument("cluster", shell_complete=complete.clusters)
@click.option("--metric", help="Remove only this metric, for example busbw_plateau.")
def expire(cluster: str, metric: str | None) -> None:
    """Remove the pinned baselines of CLUSTER (a name or a cluster file)."""
    from seatrial.history import open_store

    cluster = name_of(cluster)
    with open_store() as store:
        pins = store.pinned(cluster)
        if not pins:
            clusters = ", ".join(store.pinned_clusters()) or "none"
            raise InputError(
                f"baseline expire: no pinned baselines for {cluster!r}; clusters with "
                f"some: {clusters}"
            )
        chosen = [series for series in pins if metric is None or series.split("|", 1)[0] == metric]
        if not chosen:
            metrics = ", ".join(sorted({series.split("|", 1)[0] for series in pins}))
            raise InputError(
                f"baseline expire: no pinned baselines of metric {metric!r} for "
                f"{cluster!r}; pinned metrics: {metrics}"
            )
        gone = store.unpin(cluster, chosen)
    print(f"{cluster}: {gone} pinned baselines removed")
