"""`seatrial examples`: the cluster files, suites, requirements, manifests, images and docs that
ship with seatrial.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import click

from seatrial.cli import complete
from seatrial.cli.options import FILE, json_option, print_json, write_new
from seatrial.cli.shipped_examples import Example, shipped_examples
from seatrial.model.errors import InputError, os_errors_named
from seatrial.system.shipped import CLUSTER_SCHEMA, CLUSTERS, REPOSITORY
from seatrial.text.words import nearest_of


@click.command()
@click.argument("name", required=False, shell_complete=complete.examples)
@click.option(
    "--out", type=FILE, metavar="DIR", help="Write it into this folder, which is made if need be."
)
@json_option
def examples(name: str | None, out: Path | None, as_json: bool) -> None:
    """List the examples that ship with seatrial, or print the file NAME; --out writes NAME, or a
    whole folder.

    Nothing is overwritten. A cluster file gets its JSON Schema beside it, by which editors check
    it.
    """
    shipped = shipped_examples()
    if name is None:
        if out is not None:
            raise InputError("--out: needs the NAME of an example; `seatrial examples` lists them")
        _list(shipped, as_json)
        return
    if name not in shipped:
        legal = nearest_of(name, shipped) or "`seatrial examples` lists them"
        raise InputError(f"NAME {name[:80]!r}: is no example; {legal}")
    source = shipped[name].path
    if out is not None:
        written = write_example(source, out)
        if as_json:
            print_json({"name": name, "written": str(written)})
        else:
            print(f"{written}: written")
        return
    if source.is_dir():
        raise InputError(f"NAME {name}: is a folder; --out DIR writes it")
    text = source.read_text(encoding="utf-8")
    if as_json:
        print_json({"name": name, "path": str(source), "text": text})
    else:
        print(text, end="")


def _list(shipped: Mapping[str, Example], as_json: bool) -> None:
    if as_json:
        rows = [
            {"name": name, "path": str(example.path), "purpose": example.purpose}
            for name, example in shipped.items()
        ]
        print_json(rows)
        return
    width = max(map(len, shipped))
    for name, example in shipped.items():
        print(f"{name:<{width}}  {example.purpose}")


def write_example(source: Path, out: Path) -> Path:
    """Copy a file or a folder into the folder `out`; return what was written. Raises InputError."""
    target = out / source.name
    taken = InputError(f"{target}: is there already; remove it, or give another --out")
    if os.path.lexists(target):
        raise taken
    with os_errors_named(f"--out {out}: cannot be written"):
        out.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            write_new(target, source.read_bytes(), taken)
        if source.parent == REPOSITORY / CLUSTERS:
            write_schema(out)
    return target


def write_schema(folder: Path) -> None:
    """Write the JSON Schema of cluster files into the folder of one, unless one is there.

    Raises InputError.
    """
    schema = folder / CLUSTER_SCHEMA.name
    if not os.path.lexists(schema):
        content = (REPOSITORY / CLUSTER_SCHEMA).read_bytes()
        write_new(schema, content, InputError(f"{schema}: is there already"))
