"""The report of a run as one HTML file that needs nothing else: no font, no request, one script of its own."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from seatrial.model.curves import plateau
from seatrial.model.result import RunResult
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict
from seatrial.report.context import NO_CONTEXT, ReportContext
from seatrial.report.page import page
from seatrial.text import words

if TYPE_CHECKING:
    from jinja2 import Environment


def report_html(result: RunResult, context: ReportContext = NO_CONTEXT) -> str:
    """The report, with what is known besides the result."""
    return _environment().get_template("report.html.j2").render(page(result, context))


@cache
def script() -> str:
    """The page's script. The page's policy lets no other run, whatever a log has smuggled in."""
    return files("seatrial.report").joinpath("templates/report.js").read_text(encoding="utf-8")


def _environment() -> "Environment":
    """Node names, reasons and log lines come from machines under test, so everything is escaped unless marked safe."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("seatrial.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        Verdict=Verdict,
        glyphs=words.GLYPHS,
        meanings=words.MEANINGS,
        headline=words.headline,
        plateau=plateau,
        script=script(),
        script_hash=base64.b64encode(hashlib.sha256(script().encode()).digest()).decode(),
    )
    environment.filters.update(
        label=words.label,
        number=words.number,
        quantity=words.quantity,
        duration=words.duration,
        interval=words.interval,
        percent=words.percent,
        bytes=words.file_size,
        size=format_size,
        unit=words.unit_name,
        subject=words.subject_name,
    )
    return environment
