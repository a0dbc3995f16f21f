"""Baselines that a person approves: what may be pinned, what is kept of it, and what it does to the
next verdict.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seatrial.cli.app import app
from seatrial.history import Pin, RunRow, open_store
from seatrial.history.store import Store
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.report.listings import show_pins
from seatrial.runs.approve import Approval, differences, differences_to, pins, promote

START = datetime(2026, 11, 2, 1, 30, tzinfo=UTC)
ANN = Approval("ann", START, "after the upgrade")
LATENCY = Measurement("latency", 20.0, "us", Subject("cluster", "lab"), better="lower")


def plateau(value: float) -> Measurement:
    return Measurement(
        "busbw_plateau", value, "GB/s", Subject("cluster", "lab"), {"operation": "all_reduce"}
    )


def matmul(value: float) -> Measurement:
    return Measurement("matmul", value, "TFLOP/s", Subject("node", "node-0"))


def save(
    store: Store,
    number: int,
    value: float,
    verdict: Verdict = Verdict.PASS,
    nccl: str = "2.27",
    setup: Setup | None = None,
) -> str:
    at = START + timedelta(days=number)
    check = Check(
        "collectives", verdict, uncoded("because"), 1.0, (plateau(value), matmul(700), LATENCY)
    )
    software = {"nccl": nccl}
    run = RunResult(
        f"run-{number}",
        "lab",
        "quick",
        at,
        at,
        verdict,
        Reason(),
        checks=[check],
        fingerprint=software,
        setup=setup,
    )
    store.save(run, Path())
    return run.run_id


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}/history.sqlite")
    with open_store() as opened:
        yield opened


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["baseline", *arguments])


def a_run(verdict: Verdict = Verdict.PASS) -> RunRow:
    return RunRow("run-1", "lab", "quick", START, START, verdict, {}, "")


def test_a_run_that_passed_pins_the_cluster_by_the_median_of_the_runs_that_did(
    store: Store,
) -> None:
    for number, value in enumerate((380.0, 400.0, 390.0)):
        save(store, number, value)
    pinned = promote(store, "run-2", ANN)
    assert store.pinned("lab") == {pin.series: pin for pin in pinned}
    high_is_good, low_is_good = sorted(pinned, key=lambda pin: pin.series)
    assert (high_is_good.centre, high_is_good.high) == (390.0, None)
    assert high_is_good.low is not None
    assert 100 < high_is_good.low < 390
    assert (low_is_good.centre, low_is_good.low) == (20.0, None)
    assert {(pin.pinned_by, pin.pinned_at, pin.run_id, pin.note) for pin in pinned} == {
        ("ann", START, "run-2", "after the upgrade")
    }


def test_pin_of_many_quiet_runs_has_tight_bounds() -> None:
    m = plateau(400)
    (pin,) = pins(
        a_run(), [m], {m.series(): [400, 401, 399, 402, 398, 400, 401, 399, 400, 400.5]}, ANN
    )
    assert pin.low is not None
    assert 0.94 < pin.low / 400 < 0.99


def test_a_bad_run_is_refused_and_forced_only_with_a_reason_that_is_kept(store: Store) -> None:
    for number in range(3):
        save(store, number, 400)
    save(store, 3, 300, Verdict.DEGRADED, nccl="2.28")
    with pytest.raises(InputError, match="run run-3: is degraded, not pass; --force REASON"):
        promote(store, "run-3", ANN)
    pinned = promote(store, "run-3", Approval("ann", START, "n", "slower by design"))
    assert {pin.note for pin in pinned} == {"forced: slower by design; n"}
    assert {pin.series.split("|")[0]: pin.centre for pin in pinned} == {
        "busbw_plateau": 300.0,
        "latency": 20.0,
        "matmul": 700.0,  # a forced run is approved as it is, its nodes as well
    }


@pytest.mark.parametrize("forced", ["", "it is a fast cluster"])
def test_a_threshold_beyond_physics_is_refused_in_one_line_also_when_forced(
    store: Store, forced: str
) -> None:
    """Two nodes of eight GPUs whose links carry 400 GB/s: no all_reduce over 16 ranks reads 900."""
    links = Setup("H100-SXM", 2, 8, 8, "IB-8x400G")
    for number, value in enumerate((700.0, 700.0, 700.0)):
        save(store, number, value, setup=links)
    assert promote(store, "run-2", Approval("ann", START, "", forced))
    for number, value in enumerate((900.0, 900.0, 900.0)):
        save(store, number, value, setup=links)
    with pytest.raises(InputError) as refused:
        promote(store, "run-2", Approval("ann", START, "", forced))
    assert str(refused.value) == (
        "run run-2: busbw_plateau of all_reduce: a threshold of 900 GB/s is beyond the 750 GB/s "
        "that all_reduce over 16"
        " ranks can reach on node links of 400 GB/s; no run reaches more than 750"
    )
    assert {pin.centre for pin in store.pinned("lab").values()} == {700.0, 20.0}  # as it was before


def test_too_few_runs_of_the_same_software_are_refused(store: Store) -> None:
    for number in range(3):
        save(store, number, 400, nccl="2.26")
    save(store, 3, 400)
    with pytest.raises(InputError, match="rests on 1 passing run with this software, 3 are needed"):
        promote(store, "run-3", ANN)
    assert store.pinned("lab") == {}


def test_unknown_run_is_refused_with_the_newest_known_ones(store: Store) -> None:
    save(store, 0, 400)
    with pytest.raises(
        InputError, match="run nowhere: is not in the history; the newest there: run-0"
    ):
        promote(store, "nowhere", ANN)


def test_differences_from_pins_are_sorted_by_deviation() -> None:
    pinned = {
        p.series: p
        for m in (plateau(400), LATENCY)
        for p in pins(a_run(), [m], {m.series(): [m.value] * 3}, ANN)
    }
    first, second = differences(pinned, [plateau(100), LATENCY])
    assert (first.pin.unit, first.value, first.deviation, first.inside) == (
        "GB/s",
        100,
        -0.75,
        False,
    )
    assert (second.deviation, second.inside) == (0.0, True)
    assert [d.value for d in differences(pinned, [LATENCY])] == [20.0, None]


def test_approval_prompt_escapes_markdown_of_log_text(store: Store) -> None:
    evil = Measurement(
        "busbw", 400.0, "GB/s", Subject("cluster", "lab"), {"operation": "` ![p](http://x/p.png) `"}
    )
    for number in range(3):
        reason = "node-1 said: ![p](http://x/p.png)"
        check = Check("collectives", Verdict.PASS, uncoded(reason), 1.0, (evil,))
        store.save(
            RunResult(
                f"run-{number}",
                "lab",
                "quick",
                START,
                START,
                Verdict.PASS,
                uncoded(reason),
                checks=[check],
            ),
            Path(),
        )
    promote(store, "run-2", ANN)
    first, _, line = differences_to(store, "run-2").splitlines()
    assert first == "**run-2** on lab, suite quick: pass. node-1 said: \\!\\[p\\](http://x/p.png)"
    assert line.count("`") == 2


def test_repeated_measurement_is_compared_with_its_pin_by_its_median() -> None:
    (pin,) = pins(a_run(), [plateau(400)], {plateau(0).series(): [400.0] * 3}, ANN)
    (difference,) = differences({pin.series: pin}, [plateau(404), plateau(396), plateau(100)])
    assert (difference.value, difference.inside) == (396, True)


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_approves_by_number(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def nameless() -> str:
        raise error("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    for number in range(3):
        save(store, number, 400)
    assert command("promote", "run-2").exit_code == 0
    assert {pin.pinned_by for pin in store.pinned("lab").values()} == {"uid 4711"}


def test_baselines_are_promoted_shown_diffed_and_expired_by_commands(
    store: Store, tmp_path: Path
) -> None:
    for number in range(4):
        save(store, number, 400)
    stored = store.result("run-2")
    assert stored
    (tmp_path / "run.json").write_text(json.dumps(stored.to_dict()))
    result = command("promote", str(tmp_path), "--note", "as delivered")
    assert result.output == "run-2: 2 baselines pinned; `seatrial baseline expire` removes them\n"
    shown = json.loads(command("show", "lab", "--json").output)
    assert {(pin["centre"], pin["run_id"], pin["note"]) for pin in shown} == {
        (400.0, "run-2", "as delivered"),
        (20.0, "run-2", "as delivered"),
    }
    assert "as delivered" in command("show", "lab").output
    save(store, 9, 90, Verdict.FAIL)
    off = json.loads(command("diff", "run-9", "--json").output)
    assert [(d["value"], d["inside"]) for d in off] == [(90.0, False), (20.0, True)]
    assert "outside" in command("diff", "run-9").output
    assert (
        command("expire", "lab", "--metric", "latency").output
        == "lab: 1 pinned baselines removed\n"
    )
    assert isinstance(command("expire", "lab", "--metric", "latency").exception, InputError)
    unknown = str(command("expire", "lba").exception)
    assert unknown == "baseline expire: no pinned baselines for 'lba'; clusters with some: lab"
    assert command("expire", "lab").output == "lab: 1 pinned baselines removed\n"
    assert command("show", "lab").output == "no pinned baselines for lab\n"
    assert command("diff", "run-9").output == "no pinned baselines for lab\n"


def test_an_upper_bound_of_zero_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    pin = Pin("drops|cluster:lab||", 0.0, None, 0.0, "", "ann", START)
    show_pins([pin])
    assert "at most 0" in capsys.readouterr().out
