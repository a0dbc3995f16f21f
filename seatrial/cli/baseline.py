"""`seatrial baseline`: what numbers should be, and where that is known from."""

import click

from seatrial.cli.options import json_option, print_json


@click.group()
def baseline() -> None:
    """What numbers should be, and where that is known from."""


@baseline.command("list")
@click.option("--hardware", help="Only that hardware.")
@json_option
def list_catalog(hardware: str | None, as_json: bool) -> None:
    """List the catalog that ships with seatrial: published numbers, each with its kind and source."""
    from seatrial.catalog.listing import listed
    from seatrial.report.catalog import catalog_json, show_catalog

    found = listed(hardware)
    if as_json:
        print_json(catalog_json(found))
    else:
        show_catalog(found)
