"""A run of some of a suite's checks: which they are, its name, and what its numbers are judged
by.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite, part_of
from seatrial.checks.table import CHECKS
from seatrial.config.run import whole_name
from seatrial.model.errors import InputError
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.tasks.record import write_run_json
from tests import samples
from tests.command_line import command


@pytest.mark.parametrize(
    ("names", "run", "called"),
    [
        (["devices"], {"connectivity", "devices"}, "nightly (only devices)"),
        (
            ["training", "devices"],
            {"connectivity", "devices", "training"},
            "nightly (only devices, training)",
        ),
        (["connectivity"], {"connectivity"}, "nightly (only connectivity)"),
    ],
)
def test_part_of_a_suite_has_only_the_chosen_checks_and_their_needs(
    names: list[str], run: set[str], called: str
) -> None:
    part = part_of(load_suite("nightly"), names)
    assert {kind.name for kind in CHECKS if part.section(kind.section)} == run
    assert (part.name, whole_name(part.name), whole_name("nightly")) == (
        called,
        "nightly",
        "nightly",
    )


@pytest.mark.parametrize("name", ["trainin", "launch", "", "dcgm"])
def test_only_option_refuses_a_check_that_the_suite_lacks(name: str) -> None:
    with pytest.raises(
        InputError, match=rf"^--only '{name}': is no check of suite quick; legal: connectivity, "
    ):
        part_of(load_suite("quick"), ["devices", name])


def earlier(folder: Path, **verdicts: Verdict) -> str:
    """The folder of a run with these verdicts."""
    result = samples.healthy_local()
    checks = tuple(
        Check(name, verdict, uncoded(f"{name} ended so")) for name, verdict in verdicts.items()
    )
    write_run_json(replace(result, checks=checks, suite="nightly (only devices)"), folder)
    return str(folder)


@pytest.mark.parametrize(
    ("verdicts", "only"),
    [
        (
            {"connectivity": Verdict.PASS, "devices": Verdict.FAIL, "training": Verdict.NOT_RUN},
            ("devices", "training"),
        ),
        ({"connectivity": Verdict.FAIL, "collectives": Verdict.PASS}, ("connectivity",)),
        ({"collectives": Verdict.DEGRADED, "localize": Verdict.FAIL}, ("collectives",)),
        ({"launch": Verdict.NOT_RUN, "training": Verdict.NOT_RUN}, ()),
    ],
)
def test_rerun_takes_the_suite_and_only_checks_that_did_not_pass(
    verdicts: dict[str, Verdict],
    only: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []

    def start(cluster: Path, suite: str, **options: Any) -> int:
        started.append((suite, options["only"]))
        return 0

    monkeypatch.setattr("seatrial.cli.run_by_hand.run_by_hand", start)
    monkeypatch.setattr("seatrial.flows.serving.server.provide_prefect_server", lambda: None)
    assert command("run", "a.yaml", "--rerun", earlier(tmp_path / "r", **verdicts)) == 0
    assert started == [("nightly", only)]


def test_a_run_in_which_everything_passed_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = earlier(tmp_path / "r", devices=Verdict.PASS)
    assert command("run", "a.yaml", "--rerun", run) == 2
    assert "everything passed in it; leave --rerun out" in capsys.readouterr().err
    assert command("run", "a.yaml", "--rerun", run, "--only", "devices") == 2
