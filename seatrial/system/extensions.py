"""What other packages add to the tables of checks, platforms and readers, by entry points
(docs/extending.md).

An entry point that cannot be used costs one line, and all else works without it.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seatrial.model.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger("seatrial")
Added = TypeVar("Added")
Accept = Callable[[str, Any], Added]  # returns an object that has this name, or raises ValueError


def loaders(group: str, accept: Accept[Added]) -> dict[str, Callable[[], Added]]:
    """Return a function that imports each entry point of the group, by name, in all installed
    packages.
    """
    return {entry.name: partial(_load, entry, accept) for entry in _entry_points(group)}


def _entry_points(group: str) -> "Iterable[EntryPoint]":
    """Parse the metadata of all packages only where one names the group: it takes as long as
    judging a small log.
    """
    files = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(os.access(file, os.R_OK) and group.encode() in file.read_bytes() for file in files):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _load(entry: "EntryPoint", accept: Accept[Added]) -> Added:
    """Import what the entry point names. Raises InputError where it cannot be used."""
    try:
        return accept(entry.name, entry.load())
    except (Exception, SystemExit) as error:  # whatever a module does as it is imported
        raise InputError(
            f"{entry.group}: {entry.name} = {entry.value} cannot be used: {error!r:.300}"
        ) from error


def usable(loaders: Mapping[str, Callable[[], Added]]) -> dict[str, Added]:
    """Import all that can be used; log a line for what cannot."""
    imported = {}
    for name, load in loaders.items():
        try:
            imported[name] = load()
        except InputError as error:
            log.warning("%s", error)
    return imported
