"""Cells of a CSV file that no spreadsheet takes for a formula: names in them come from nodes and files of others.

A spreadsheet shows what stands behind a leading apostrophe as text. Source: OWASP, "CSV Injection". Pure.
"""

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")


def as_text(cell: object) -> object:
    """The cell, with an apostrophe before a text that begins as a formula does; numbers are as they were."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def from_text(cell: str) -> str:
    """What `as_text` was given."""
    return cell[1:] if _ESCAPED.match(cell) else cell
