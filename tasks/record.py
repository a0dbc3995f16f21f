"""Steps `record` and `metrics`: write the files of the run, save it, and publish its headline
numbers.

Nothing is lost when a later step fails. A failure of `metrics` is a note, never a verdict.
"""

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from seatrial.config.run import Run
from seatrial.model.curves import Reading, every_reading
from seatrial.model.errors import SeatrialError, classed
from seatrial.model.result import Check, RunResult
from seatrial.report.markdown import judgement_rows, summary
from seatrial.report.metrics import publish, target_of_environment
from seatrial.runs.measurements_file import FIXED_COLUMNS
from seatrial.runs.run_state import without_details
from seatrial.system.disk_reserve import release
from seatrial.system.private import write_atomic
from seatrial.text.escape import as_text, escape
from seatrial.text.headline import lines

if TYPE_CHECKING:
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.record")


def record(
    result: RunResult, run: Run, store: "Store | None" = None, log_file: Path | None = None
) -> dict[str, Path]:
    """Write run.json, measurements.csv and report.html into `run.out`, then save the run in
    `store`.

    Returns the files that were written, by name. Raises SeatrialError when run.json cannot be
    written; later failures are warnings. `log_file` is the run's log, whose end goes into the
    report of a run that does not pass.
    """
    written = {"run.json": write_run_json(result, run.out)}
    with _logging_failure("measurements.csv"):
        written["measurements.csv"] = write_atomic(
            run.out / "measurements.csv", measurements_csv(result)
        )
    with _logging_failure("report.html"):
        written["report.html"] = write_atomic(
            run.out / "report.html", _report(result, run.out, store, log_file)
        )
    if store is not None:
        with _logging_failure("the history"):
            store.save(result, run.out)
    return written


def run_json(result: RunResult) -> str:
    """Format run.json. JSON has no NaN or infinity, so those become null."""
    return (
        json.dumps(_jsonable(result.to_dict()), indent=1, allow_nan=False, ensure_ascii=False)
        + "\n"
    )


def measurements_csv(result: RunResult) -> str:
    """Format one tidy row per measurement: conditions are columns, samples a JSON list; no cell is
    a formula.
    """
    import pandas as pd

    rows = [
        _row(result, check, reading) for check in result.checks for reading in every_reading(check)
    ]
    conditions = sorted({key for row in rows for key in row} - set(FIXED_COLUMNS))
    place = FIXED_COLUMNS.index("value")
    # dtype object: a column of whole numbers stays whole where some rows have none
    columns = [*FIXED_COLUMNS[:place], *conditions, *FIXED_COLUMNS[place:]]
    return pd.DataFrame(rows, columns=columns, dtype=object).to_csv(
        index=False, lineterminator="\n"
    )


def _row(result: RunResult, check: Check, reading: Reading) -> dict[str, Any]:
    m = reading.measurement
    judgement = reading.judgement
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
    """Write run.json into `out`; without its details if the disk is full. Raises SeatrialError."""
    release(out)
    try:
        return _write_run_json(result, out)
    except Exception as error:
        if (out / "run.json").exists():  # of this run, and with its details
            raise _unwritten(out, error) from error
        why = _strerror(error)
        log.warning("run.json has no details: %s", why)
    try:
        return _write_run_json(
            without_details(result, f"the details could not be written: {why}"), out
        )
    except Exception as error:
        raise _unwritten(out, error) from error


def _unwritten(out: Path, error: Exception) -> SeatrialError:
    return SeatrialError.of("run-json-not-written", out=out, strerror=_strerror(error))


def _strerror(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or classed(error)


def _write_run_json(result: RunResult, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return write_atomic(out / "run.json", run_json(result))


@contextlib.contextmanager
def _logging_failure(part: str) -> Iterator[None]:
    """Turn an error into a warning: what is written already is worth more."""
    try:
        yield
    except Exception as error:
        log.warning("%s could not be written: %s", part, classed(error))


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_jsonable(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def metrics(result: RunResult, store: "Store | None") -> str | None:
    """Publish where SEATRIAL_METRICS says; return the problem, if any."""
    try:
        target = target_of_environment()
        if target is None:
            return None
        if result.passed:
            last_good: datetime | None = result.finished
        else:
            row = store.last_pass(result.cluster, result.suite, result.run_id) if store else None
            last_good = row.finished if row else None
        log.info("metrics: %s", publish(result, last_good, target))
    except Exception as error:  # whatever it is, it is not the cluster's
        problem = f"metrics could not be published: {error}"
        log.warning("%s", problem)
        return problem
    return None


metrics_task = task(name="metrics", cache_policy=NO_CACHE)(metrics)


@task(name="record", cache_policy=NO_CACHE)
def record_task(
    result: RunResult, run: Run, store: "Store | None" = None, log_file: Path | None = None
) -> dict[str, Path]:
    written = record(result, run, store, log_file)
    key = f"judgements-{run.cluster.name}"
    with _logging_failure(f"the Prefect artifact {key}"):
        create_table_artifact(
            table=judgement_rows(result),
            key=key,
            description="\n\n".join(map(escape, lines(result))),
        )
    key = f"summary-{run.cluster.name}"
    with _logging_failure(f"the Prefect artifact {key}"):
        create_markdown_artifact(markdown=summary(result), key=key)
    return written
