"""Where the pages of docs are: SEATRIAL_DOCS_URL says at which address, else the files that ship
with seatrial.
"""

import os
import re
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "packaged" / "docs", _PACKAGE.parent / "docs")  # of a wheel, of a checkout
_PAGE = re.compile(r"\bdocs/([a-z-]{1,40})\.md(#[a-z-]{1,80})?")


def with_addresses(text: str) -> str:
    """Return the text with the address in place of each page that it names: docs/alerts.md."""
    return _PAGE.sub(_address, text)


def _address(page: re.Match[str]) -> str:
    """Return the address of a page, else the path of its file, else its name."""
    name = page[1]
    anchor = page[2] or ""
    if url := os.environ.get("SEATRIAL_DOCS_URL", "").rstrip("/"):
        return f"{url}/{name}.html{anchor}"
    for folder in _FOLDERS:
        file = folder / f"{name}.md"
        if file.is_file():
            return f"{file}{anchor}"
    return page[0]
