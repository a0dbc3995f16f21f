"""The report as PDF, A4: the same page, through WeasyPrint, which needs no browser and no network."""

import logging
import re
from functools import cache
from importlib.resources import files
from typing import Any

from seatrial.model.errors import InputError

_HOW_TO = (
    "pip install 'seatrial[pdf]'",
    "apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core",
)
_DECLARED = re.compile(r"(--[\w-]+): (#[0-9a-f]{3,6})")
_USED = re.compile(r"var\((--[\w-]+)\)")
_MIXED = re.compile(r"color-mix\(in srgb, ([^,]+?) (\d+)%, transparent\)")
# What the printer does not know of folding: a folded group prints as it is.
_SUMMARY = "summary { display: block; }"


def pdf_of(html: str) -> bytes:
    """The report `html` as PDF. Raises InputError that says what to install where WeasyPrint or its libraries lack."""
    printer = _printer()
    paper = on_paper(html).encode(errors="backslashreplace").decode()
    document: bytes = printer.HTML(string=paper, url_fetcher=_refuse).write_pdf()
    return document


def on_paper(html: str) -> str:
    """The page with its colours in place of their variables, as on paper: drawings know nothing of the page's style."""
    paper = paper_colours()
    still = re.sub(r'<script>.*?</script>|<g class="hits".*?</g>', "", html, flags=re.DOTALL)
    coloured = _USED.sub(lambda use: paper.get(use[1], use[0]), still)
    return _MIXED.sub(_mixed, coloured).replace("</style>", f"{_SUMMARY}</style>", 1)


@cache
def paper_colours() -> dict[str, str]:
    """The colour on paper of each variable of the page's style."""
    css = files("seatrial.report").joinpath("templates/report.css").read_text(encoding="utf-8")
    return {
        **dict(_DECLARED.findall(css.partition("@media")[0])),
        **dict(_DECLARED.findall(css.partition("@media print")[2])),
    }


def _mixed(mix: re.Match[str]) -> str:
    """A colour thinned on white; one that is only known where it is used keeps its name, and the rule is left out."""
    if not re.fullmatch(r"#[0-9a-f]{6}", mix[1]):
        return mix[0]
    part = int(mix[2]) / 100
    channels = (int(mix[1][i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - part * (255 - channel)):02x}" for channel in channels)


def _refuse(url: str, *_: Any, **__: Any) -> Any:
    raise ValueError(f"{url}: a report asks for nothing")


def _printer() -> Any:
    try:
        import weasyprint
    except ImportError as error:
        raise InputError(f"--format pdf: needs WeasyPrint ({error}): {_HOW_TO[0]}") from error
    except OSError as error:  # one of the system's libraries
        raise InputError(
            f"--format pdf: WeasyPrint lacks a library ({str(error).splitlines()[0]}): {_HOW_TO[1]}"
        ) from error
    logging.getLogger("weasyprint").setLevel(logging.ERROR)  # it names every rule that is for screens only
    return weasyprint
