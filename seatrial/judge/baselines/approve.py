"""Approve a stored run as a baseline: what the command line and the flow `promote` share."""

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from seatrial.history.rows import Pin, RunRow
from seatrial.judge.baselines.nights import medians_of_runs
from seatrial.judge.baselines.promote import Approval, differences, pins
from seatrial.model.errors import InputError
from seatrial.model.verdict import Verdict
from seatrial.text.markdown import code, escape

if TYPE_CHECKING:
    from seatrial.history.store import Store

_TAUGHT_BY = timedelta(days=90)
_A_MOMENT = timedelta(microseconds=1)
_TOLD = 20  # differences in a question


def stored_run(store: "Store", run_id: str) -> RunRow:
    """The run of that id. Raises InputError that names the newest ones when there is none."""
    run = store.run(run_id)
    if run is None:
        newest = ", ".join(row.run_id for row in store.runs(limit=3)) or "none"
        raise InputError(f"run {run_id}: is not in the history; the newest there: {newest}")
    return run


def differences_to(store: "Store", run_id: str) -> str:
    """What whoever approves a run should know: what it came to, and how it differs from what is pinned now. Markdown.

    Raises InputError when there is no such run.
    """
    run = stored_run(store, run_id)
    pin_differences = [
        d for d in differences(store.pinned(run.cluster), store.measurements(run_id)) if d.deviation is not None
    ]
    came_to = f"on {run.cluster}, suite {run.suite}: {run.verdict.value}. {run.reason}"
    lines = [f"**{escape(run.run_id)}** {escape(came_to)}", ""]
    if run.verdict is not Verdict.PASS:
        lines += ["It did not pass: to approve it all the same, `force` needs the reason.", ""]
    lines += [f"- `{code(d.pin.series)}`: {d.deviation:+.1%} from what is pinned" for d in pin_differences[:_TOLD]]
    return "\n".join(lines) if pin_differences else "\n".join([*lines, "Nothing that it measured is pinned so far."])


def promote(store: "Store", run_id: str, approval: Approval) -> list[Pin]:
    """Pin the numbers of a run. Raises InputError for one that is unknown, bad, or rests on too little."""
    run, result = stored_run(store, run_id), store.result(run_id)
    measured = store.measurements(run_id)
    names = list(dict.fromkeys(m.series() for m in measured))
    new_pins = pins(run, measured, _earlier(store, run, names), approval, result.setup if result else None)
    store.pin(run.cluster, new_pins)
    return new_pins


def _earlier(store: "Store", run: RunRow, names: list[str]) -> dict[str, list[float]]:
    """The values of passing runs with the same software up to this one, by series."""
    rows = store.runs_since(run.cluster, run.suite, run.started - _TAUGHT_BY, run.started + _A_MOMENT)
    alike = [row.run_id for row in rows if row.verdict is Verdict.PASS and row.fingerprint == run.fingerprint]
    return medians_of_runs(store.readings(alike, names), names, np.ones(len(alike), dtype=bool))
