"""All codes of reasons by area: those of the table, and those of causes in logs."""

from collections.abc import Mapping

from seatrial import causes
from seatrial.model.explanations import Explanation, areas

AREAS: Mapping[str, Mapping[str, Explanation]] = {**areas(), "Logs": causes.REASONS}
CATALOG: Mapping[str, Explanation] = {
    code: entry for area in AREAS.values() for code, entry in area.items()
}
# By the code that an earlier version wrote
_CURRENT = {former: code for code, entry in CATALOG.items() for former in entry.formerly}


def current(code: str) -> str:
    """Return the present code for `code`, which an earlier version may have written."""
    return _CURRENT.get(code, code)
