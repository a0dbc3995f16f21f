import errno
import io
import json
import math
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from seatrial.config.run import Run
from seatrial.flows import chain
from seatrial.flows.serving import by_hand
from seatrial.history import RunRow
from seatrial.history.store import Store
from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.report import html
from seatrial.runs.load import load_result
from seatrial.runs.run_state import RunState
from seatrial.tasks.record import measurements_csv, record, record_task, run_json
from tests import samples
from tests.unit.collectives.fake_mpirun import make_run

FILES = {"run.json", "measurements.csv", "report.html"}


class Shelf(Store):
    """A store that remembers, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.saved: list[tuple[RunResult, Path]] = []
        self.error = error

    def runs(self, cluster: str | None = None, limit: int = 20) -> list[RunRow]:
        return []

    def save(self, result: RunResult, out: Path) -> None:
        if self.error:
            raise self.error
        self.saved.append((result, out))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return replace(make_run(tmp_path), out=tmp_path / "runs" / "one")


def test_record_writes_all_files_and_saves_the_run(run: Run) -> None:
    shelf, result = Shelf(), samples.healthy_local()
    written = record(result, run, shelf)
    assert set(written) == FILES
    assert {path.name for path in run.out.iterdir()} == FILES
    assert json.loads(written["run.json"].read_text()) == result.to_dict()
    assert (
        "<h1>pass: connectivity, collectives, training: all pass</h1>"
        in written["report.html"].read_text()
    )
    assert shelf.saved == [(result, run.out)]


def test_second_record_replaces_the_first(run: Run) -> None:
    record(samples.healthy_local(), run)
    record(replace(samples.healthy_local(), reason=uncoded("again")), run)
    assert load_result(run.out).reason.sentence == "again"
    assert {path.name for path in run.out.iterdir()} == FILES


def test_the_log_ends_up_in_the_report_of_a_failure(run: Run, tmp_path: Path) -> None:
    log_file = tmp_path / "run.log"
    log_file.write_bytes(b"early\n" * 1000 + b"the last \xff words\n")
    report = record(samples.faulty_h100(), run, log_file=log_file)["report.html"].read_text()
    assert "the last \N{REPLACEMENT CHARACTER} words" in report
    assert report.count("early") < 100


def test_an_unwritable_folder_is_one_clear_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(
        SeatrialError, match=r"runs/one: run.json cannot be written: .*; choose another --out$"
    ) as raised:
        record(samples.healthy_local(), run)
    # An InputError ends with exit status 2, and the run has measured
    assert not isinstance(raised.value, InputError)


@pytest.fixture
def full(run: Run, monkeypatch: pytest.MonkeyPatch) -> RunState:
    """A run that failed, on a disk that takes nothing any more."""

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("seatrial.system.private.os.fsync", no_space)
    return RunState(run, checks=[Check("collectives", Verdict.FAIL, uncoded("slow"))])


def test_a_disk_that_fills_up_after_recording_leaves_the_verdict_as_it_is(
    full: RunState, caplog: pytest.LogCaptureFixture
) -> None:
    full.done.add("record")
    assert chain.rewrite_run_json(full).verdict is Verdict.FAIL
    assert "run.json is as it was before the last steps: " in caplog.text


def test_run_that_sent_its_alert_keeps_its_verdict_when_not_recorded(
    full: RunState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "deployment", SimpleNamespace(id="1"))
    full.done.add("notify")
    assert chain.rewrite_run_json(full).verdict is Verdict.FAIL


def test_run_recorded_nowhere_exits_3(full: RunState, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SeatrialError, match="No space left") as raised:
        chain.rewrite_run_json(full)
    monkeypatch.setattr(by_hand, "provide_prefect_server", lambda: None)
    monkeypatch.setattr(by_hand, "_run_flow", lambda *_, **__: raised.value)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    outcome = by_hand.flow_by_hand("seatrial.flows.check:check", cluster="a.yaml")
    assert isinstance(outcome, by_hand.Unfinished)
    assert outcome.exit_status == 3


def test_interrupted_run_is_uploaded_though_the_disk_is_full(
    full: RunState, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded: list[Run] = []
    monkeypatch.setattr(chain, "upload", lambda run, *_: uploaded.append(run))
    chain.record_cut(full, KeyboardInterrupt())
    assert uploaded == [full.run]


@pytest.mark.parametrize(
    ("cut", "code"), [(KeyboardInterrupt(), "cut-off"), (SeatrialError(uncoded("broken")), None)]
)
def test_a_run_that_is_cut_off_without_a_result_gets_one(
    run: Run, cut: BaseException, code: str | None
) -> None:
    """As a campaign between two phases; what failed is no run that was cut off."""
    with pytest.raises(type(cut)), chain.recorded_if_cut(run):
        raise cut
    file = run.out / "run.json"
    assert (load_result(file).reason.code if file.exists() else None) == code


def test_failed_report_leaves_other_files_and_the_history_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(html, "report_html", lambda *_: 1 / 0)
    shelf = Shelf()
    written = record(samples.healthy_local(), run, shelf)
    assert set(written) == FILES - {"report.html"}
    assert shelf.saved
    assert "report.html could not be written: ZeroDivisionError" in caplog.text


def test_a_failing_history_is_named(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert set(record(samples.healthy_local(), run, Shelf(OSError("disk full")))) == FILES
    assert "the history could not be written: OSError: disk full" in caplog.text


def test_what_prefect_shows_as_markdown_is_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(
        "seatrial.tasks.record.create_table_artifact",
        lambda *, description, **_: shown.append(description),
    )
    monkeypatch.setattr("seatrial.tasks.record.create_markdown_artifact", lambda **_: None)
    record_task.fn(
        replace(
            samples.healthy_local(), reason=uncoded("node-1 said: <b> @all ![p](http://x/p.png)")
        ),
        run,
    )
    assert (
        shown[0].splitlines()[0]
        == "pass: node-1 said: &lt;b&gt; @\u200ball \\!\\[p\\](http://x/p.png)"
    )
    assert [line.partition(":")[0] for line in shown[0].splitlines()[2::2]] == ["since", "next"]


def test_json_has_no_nan(run: Run) -> None:
    document = json.loads(run_json(_with_nan()), parse_constant=lambda name: pytest.fail(str(name)))
    assert document["timings"]["launch"] is None
    assert document["nodes"][0] == {"name": "node-0", "load": None, "path": "/x"}
    assert document["checks"][0]["judgements"][0]["value"] is None


def test_measurements_csv_has_one_row_per_measurement() -> None:
    table = pd.read_csv(io.StringIO(measurements_csv(samples.faulty_h100())))
    row = table[(table.metric == "busbw_plateau") & (table.operation == "all_reduce")].iloc[0]
    assert (row.run_id, row.cluster, row.suite) == ("20260314-0200-k3f9a", "h100-east", "nightly")
    assert row.check == "collectives"
    assert (row.verdict, row.source) == ("fail", "catalog")
    assert row.expected_low < row.expected_high
    assert len(table) == sum(len(check.measurements) for check in samples.faulty_h100().checks)
    assert "1048576," in measurements_csv(samples.faulty_h100())
    assert len(json.loads(table[table.metric == "loss"].iloc[0].samples)) == 100


def test_measurements_csv_keeps_nan_and_infinity() -> None:
    table = pd.read_csv(io.StringIO(measurements_csv(_with_nan())))
    assert math.isnan(table.iloc[0].value)
    assert math.isinf(table.iloc[1].value)
    assert json.loads(table.iloc[0].samples) == [1.5, None]
    assert ",nan," in measurements_csv(_with_nan())


def test_a_run_without_measurements_has_a_header(run: Run) -> None:
    record(replace(samples.healthy_local(), checks=()), run)
    assert (run.out / "measurements.csv").read_text().startswith("run_id,cluster,suite,check,")
    assert load_result(run.out).checks == []


def _with_nan() -> RunResult:
    cluster = Subject("cluster", "cluster")
    loss = Measurement("loss", math.nan, "", cluster, {"ranks": 4}, (1.5, math.nan))
    other = Measurement("ratio", math.inf, "", cluster)
    judgement = Judgement(loss, Verdict.CORRUPT, uncoded("NaN"), "sanity", deviation=math.inf)
    check = Check("training", Verdict.CORRUPT, uncoded("NaN"), 1.0, (loss, other), (judgement,))
    nodes = [{"name": "node-0", "load": math.nan, "path": Path("/x")}]
    return replace(
        samples.healthy_local(), checks=[check], nodes=nodes, timings={"launch": math.nan}
    )
