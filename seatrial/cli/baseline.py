"""`seatrial baseline`: reference values and their sources."""

import click

from seatrial.cli.options import json_option, print_json


@click.group()
def baseline() -> None:
    """Show and approve the reference values that measurements are compared with."""


@baseline.command("list")
@click.option("--hardware", help="Show only this hardware.")
@json_option
def list_catalog(hardware: str | None, as_json: bool) -> None:
    """List the catalog of published values that ships with seatrial, each with its kind and source."""
    from seatrial.catalog.listing import listed
    from seatrial.report.catalog import catalog_json, show_catalog

    rows = listed(hardware)
    if as_json:
        print_json(catalog_json(rows))
    else:
        show_catalog(rows)
