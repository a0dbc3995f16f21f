"""The report of a run as one HTML file that needs nothing else: no script, no font, no request of any kind."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seatrial.report import words
from seatrial.report.series import plateau
from seatrial.report.view import page
from seatrial.result import RunResult
from seatrial.sizes import format_size
from seatrial.verdict import Verdict

if TYPE_CHECKING:
    from jinja2 import Environment


def report_html(result: RunResult, log_tail: Sequence[str] = ()) -> str:
    """The report; `log_tail` are the last lines of the run's log, shown when the verdict is not a pass."""
    return _environment().get_template("report.html.j2").render(page(result, log_tail))


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
        Verdict=Verdict, glyphs=words.GLYPHS, meanings=words.MEANINGS, headline=words.headline, plateau=plateau
    )
    environment.filters.update(
        label=words.label,
        number=words.number,
        quantity=words.quantity,
        duration=words.duration,
        interval=words.interval,
        percent=words.percent,
        size=format_size,
        unit=words.unit_name,
        subject=words.subject_name,
    )
    return environment
