"""Step `record`: write the files of the run and save it, so that nothing is lost when a later step fails."""

import contextlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from seatrial.config.run import Run
from seatrial.model.curves import Reading, every_reading
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.report.markdown import judgement_rows, summary
from seatrial.runs.load import FIXED_COLUMNS
from seatrial.runs.run_state import without_details
from seatrial.system.atomic import write_atomic
from seatrial.system.disk_reserve import release
from seatrial.text.csv_cells import as_text
from seatrial.text.markdown import escape

if TYPE_CHECKING:
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.record")


def record(result: RunResult, run: Run, store: "Store | None" = None, log_file: Path | None = None) -> dict[str, Path]:
    """Write run.json, measurements.csv and report.html into `run.out`, then save the run in `store`.

    Returns the files that were written, by name. run.json comes first: without it there is no result, so SeatrialError
    is raised when it cannot be written. Whatever fails after it is a warning. `log_file` is the run's log, whose end
    goes into the report of a run that does not pass.
    """
    written = {"run.json": write_run_json(result, run.out)}
    with _lossless("measurements.csv"):
        written["measurements.csv"] = write_atomic(run.out / "measurements.csv", measurements_csv(result))
    with _lossless("report.html"):
        written["report.html"] = write_atomic(run.out / "report.html", _report(result, run.out, store, log_file))
    if store is not None:
        with _lossless("the history"):
            store.save(result, run.out)
    return written


def run_json(result: RunResult) -> str:
    """run.json as text. JSON has no NaN or infinity, so those become null."""
    return json.dumps(_jsonable(result.to_dict()), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def measurements_csv(result: RunResult) -> str:
    """One row per measurement, tidy: conditions are columns of their own, samples a JSON list; no cell is a formula."""
    import pandas as pd

    rows = [_row(result, check, reading) for check in result.checks for reading in every_reading(check)]
    conditions = sorted({key for row in rows for key in row} - set(FIXED_COLUMNS))
    place = FIXED_COLUMNS.index("value")
    columns = [*FIXED_COLUMNS[:place], *conditions, *FIXED_COLUMNS[place:]]
    # dtype object: a column of whole numbers stays whole where some rows have none
    return pd.DataFrame(rows, columns=columns, dtype=object).to_csv(index=False, lineterminator="\n")


def _row(result: RunResult, check: Check, reading: Reading) -> dict[str, Any]:
    m, judgement = reading.measurement, reading.judgement
    expected = judgement.expected if judgement else None
    own = {
        "run_id": result.run_id,
        "cluster": result.cluster,
        "suite": result.suite,
        "check": check.name,
        "metric": m.metric,
        "subject_kind": m.subject.kind,
        "subject": m.subject.name,
        "value": m.value if m.finite else str(m.value),  # an empty cell would read as not measured
        "unit": m.unit,
        "better": m.better,
        "verdict": judgement.verdict.value if judgement else None,
        "expected_low": expected.low if expected else None,
        "expected_high": expected.high if expected else None,
        "source": judgement.source if judgement else None,
        "samples": json.dumps(_jsonable(m.samples)) if m.samples else None,
        "printed": m.printed,
    }
    return {name: as_text(cell) for name, cell in {**m.conditions, **own}.items()}


def _report(result: RunResult, folder: Path, store: "Store | None", log_file: Path | None) -> str:
    from seatrial.report.context import context_of
    from seatrial.report.html import report_html

    return report_html(result, context_of(result, folder, store, log_file))


def write_run_json(result: RunResult, out: Path) -> Path:
    """Write run.json into `out`; where that cannot be done and there is none, without its details.

    Raises SeatrialError when that cannot be done either, which is no bad input any more.
    """
    release(out)
    try:
        return _write_run_json(result, out)
    except Exception as error:
        if (out / "run.json").exists():  # of this run, and with its details
            raise _unwritten(out, error) from error
        why = _strerror(error)
        log.warning("run.json has no details: %s", why)
    try:
        return _write_run_json(without_details(result, f"the details could not be written: {why}"), out)
    except Exception as error:
        raise _unwritten(out, error) from error


def _unwritten(out: Path, error: Exception) -> SeatrialError:
    return SeatrialError(Reason.of("run-json-not-written", out=out, strerror=_strerror(error)))


def _strerror(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"


def _write_run_json(result: RunResult, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return write_atomic(out / "run.json", run_json(result))


@contextlib.contextmanager
def _lossless(what: str) -> Any:
    """What is written next is worth less than what already is: its failure is said, and the run goes on."""
    try:
        yield
    except Exception as error:
        log.warning("%s could not be written: %s: %s", what, type(error).__name__, error)


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_jsonable(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _publish(name: str, create: Callable[[], object]) -> None:
    with _lossless(f"the Prefect artifact {name}"):
        create()


def _publish_judgements(result: RunResult, key: str) -> None:
    came_to = escape(f"{result.verdict.value}: {result.reason}")
    create_table_artifact(table=judgement_rows(result), key=key, description=came_to)


@task(name="record", cache_policy=NO_CACHE)
def record_task(
    result: RunResult, run: Run, store: "Store | None" = None, log_file: Path | None = None
) -> dict[str, Path]:
    written = record(result, run, store, log_file)
    key = f"judgements-{run.cluster.name}"
    _publish(key, lambda: _publish_judgements(result, key))
    key = f"summary-{run.cluster.name}"
    _publish(key, lambda: create_markdown_artifact(markdown=summary(result), key=key))
    return written
