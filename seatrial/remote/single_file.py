"""A probe as one file that Python runs, for machines that have torch and no seatrial. Pure."""

import ast
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from seatrial.remote.probes import PROBES, probe

BY_HAND = ("check", "devices", "collective", "all_reduce", "training", "facts", "inventory", "disk")
_STARTED_BY = {"check": ("devices", "collective", "all_reduce", "training", "facts")}  # as processes of their own
_FIRST_LINE = b"#!/usr/bin/env python3\n"
_START = """\
import runpy
runpy.run_module("{name}", run_name="__main__", alter_sys=True)
"""


def single_file(name: str) -> bytes:
    """A zip archive that Python runs as a script; the same bytes each time.

    It holds the probe, those that it starts, and those that any of them imports.
    """
    archive = io.BytesIO(_FIRST_LINE)
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_entry("__main__.py"), _START.format(name=name))
        roots = (name, *_STARTED_BY.get(name, ()))
        for path in sorted({path for root in roots for path in _with_imports(probe(root))}):
            file.writestr(_entry(path.name), path.read_text())
    return archive.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def _with_imports(path: Path) -> Iterator[Path]:
    """The file and the probes that it imports, and those that they import; no two import each other."""
    yield path
    siblings = {sibling.stem: sibling for sibling in PROBES}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            if name in siblings:
                yield from _with_imports(siblings[name])
