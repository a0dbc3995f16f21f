"""What other packages add to the tables of checks, platforms and readers, by entry points (docs/extending.md).

An entry point that cannot be used costs one line, and all else works without it.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from seatrial.model.errors import InputError

log = logging.getLogger("seatrial")
Added = TypeVar("Added")
Accept = Callable[[str, Any], Added]  # returns an object that has this name, or raises ValueError


def loaders(group: str, accept: Accept[Added]) -> dict[str, Callable[[], Added]]:
    """Find the entry points of a group in all packages that are installed; what imports each, by name."""
    return {entry.name: partial(_load, entry, accept) for entry in entry_points(group=group)}


def _load(entry: EntryPoint, accept: Accept[Added]) -> Added:
    """Import what the entry point names. Raises InputError where it cannot be used."""
    try:
        return accept(entry.name, entry.load())
    except (Exception, SystemExit) as error:  # whatever a module does as it is imported
        raise InputError(f"{entry.group}: {entry.name} = {entry.value} cannot be used: {error!r:.300}") from error


def usable(loaders: Mapping[str, Callable[[], Added]]) -> dict[str, Added]:
    """Import all that can be used; log a line for what cannot."""
    imported = {}
    for name, load in loaders.items():
        try:
            imported[name] = load()
        except InputError as error:
            log.warning("%s", error)
    return imported
