"""What people read of a run: the report's text, Markdown, JUnit, metrics and the terminal, kept in
tests/golden/report.

`python -m tests.unit.report.golden` writes it anew; read what changed.
"""

import json
import re
import tempfile
import textwrap
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from seatrial.history import open_store
from seatrial.model.result import RunResult
from seatrial.report.context import ReportContext
from seatrial.report.html import report_html
from seatrial.report.junit import junit_xml
from seatrial.report.listings import history_json, show_history
from seatrial.report.markdown import report_markdown, summary
from seatrial.report.metrics import registry
from seatrial.report.terminal import closing_lines, show_difference, sparkline
from seatrial.runs.difference import difference
from tests import samples
from tests.unit.report.test_html import Page, _with_a_past

_STYLE = re.compile(r"<(style|script|svg).*?</\1>", re.DOTALL)
GOLDEN = Path(__file__).parents[2] / "golden" / "report"


def _printed(show: Callable[[], Any]) -> str:
    with redirect_stdout(StringIO()) as text:
        show()
    return text.getvalue()


def _of(result: RunResult, context: ReportContext) -> dict[str, str]:
    before = samples.night(result, 2, 1.3)
    return {
        "page.txt": textwrap.fill(Page(_STYLE.sub("", report_html(result, context))).text, 160)
        + "\n",
        "report.md": report_markdown(result, context),
        "summary.md": summary(result),
        "junit.xml": junit_xml(result),
        "metrics.txt": generate_latest(registry(result, result.started)).decode(),
        "closing.txt": closing_lines(result, "utf-8")
        + "\n"
        + closing_lines(result, "ascii")
        + "\n",
        "difference.txt": _printed(lambda: show_difference(difference(before, result))),
    }


def files() -> dict[str, str]:
    """By name."""
    with tempfile.TemporaryDirectory() as name:
        faulty, context = _with_a_past(Path(name))
        with open_store(f"sqlite:///{name}/history.sqlite") as store:
            rows = store.runs()
        listed = (
            _printed(lambda: show_history(rows))
            + json.dumps(history_json(rows), indent=1, default=str)
            + "\n"
        )
    texts = {f"faulty-{file}": text for file, text in _of(faulty, context).items()}
    texts |= {
        f"healthy-{file}": text
        for file, text in _of(samples.healthy_local(), ReportContext()).items()
    }
    lines = [
        sparkline(values)
        for values in ([1.0, 2.0, 3.0], [5.0, 5.0], [0.0], [3.0, float("nan"), 1.0], [1.0] * 99)
    ]
    history = listed.replace(name, "FOLDER") + "".join(f"{line}\n" for line in lines)
    return {**texts, "history.txt": history}


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for file, text in files().items():
        (GOLDEN / file).write_text(text)
