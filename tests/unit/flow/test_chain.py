"""The chain from image to verdict: what a run comes to, and that its nodes are gone, whatever
happens in between.
"""

import json
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import NoReturn

import pytest

from seatrial.checks.contract import CheckContext, CheckType, StepResult, try_check
from seatrial.checks.devices.section import Devices
from seatrial.checks.suites import load_suite
from seatrial.checks.table import CHECKS as TABLE
from seatrial.flows import chain as steps_of_run
from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.platforms import Leftover
from tests.fake_platform import FakePlatform, ProgramOutput, Request, programs
from tests.unit.flow.conftest import RUN_ID, STEPS, Chain

CHECKS = tuple(kind.name for kind in TABLE if load_suite("quick").section(kind.section))
CALLS = ["leftovers", "launch", "collect", "teardown"]


def verdicts(result: RunResult) -> dict[str, Verdict]:
    return {made.name: made.verdict for made in result.checks}


def test_healthy_nodes_pass(chain: Chain) -> None:
    result = chain.run()
    assert (result.verdict, verdicts(result)) == (Verdict.PASS, dict.fromkeys(CHECKS, Verdict.PASS))
    assert [node["name"] for node in result.nodes] == ["node-0", "node-1", "node-2"]
    assert {m.metric for made in result.checks for m in made.measurements} >= {
        "busbw",
        "ssh_connect",
        "matmul",
        "throughput",
    }
    document = json.loads((chain.out / "run.json").read_text())
    assert (document["verdict"], [one.verdict for one in chain.notified]) == (
        "pass",
        [Verdict.PASS],
    )
    assert chain.platform.calls == CALLS


@pytest.mark.parametrize(("taken", "says"), [(1.7, True), (0.3, False)])
def test_run_notes_processors_taken_by_other_programs(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, taken: float, says: bool
) -> None:
    monkeypatch.setattr(steps_of_run, "watched", lambda: SimpleNamespace(cores=lambda: taken))
    launch = STEPS["launch_task"]
    monkeypatch.setattr(
        steps_of_run, "launch_task", lambda run: replace(launch(run), shared_cores=2)
    )
    note = "other programs took 1.7 of this machine's 2 processors: the run took longer for it"
    assert (note in chain.run().notes) == says


def test_every_measured_metric_is_declared_by_its_check(chain: Chain) -> None:
    described = {
        (kind.name, name, metric.unit) for kind in TABLE for name, metric in kind.metrics.items()
    }
    measured = {
        (made.name, m.metric, m.unit) for made in chain.run().checks for m in made.measurements
    }
    assert measured <= described
    assert {name for name, *_ in measured} == set(CHECKS)


def test_tcp_rates_of_a_run_are_those_of_the_fake_nodes(chain: Chain) -> None:
    result = chain.run()
    rates = [
        m.value for made in result.checks for m in made.measurements if m.metric == "tcp_egress"
    ]
    assert rates == pytest.approx([node.link_mb_s for node in chain.platform.nodes.values()])


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (LaunchError(Reason.of("no-testbed")), Verdict.INCONCLUSIVE),
        (MissingError(Reason.of("too-few-nodes", left=0)), Verdict.NOT_RUN),
        (ZeroDivisionError("oops"), Verdict.INCONCLUSIVE),
    ],
    ids=lambda value: value.__class__.__name__ if isinstance(value, Exception) else "",
)
def test_no_check_is_run_when_the_launch_fails(
    chain: Chain, error: Exception, verdict: Verdict
) -> None:
    chain.platform.errors["launch"] = error
    result = chain.run()
    assert (result.verdict, verdicts(result)["launch"]) == (
        max(verdict, result.verdict, key=str),
        verdict,
    )
    assert {name: verdicts(result)[name] for name in CHECKS} == dict.fromkeys(
        CHECKS, Verdict.NOT_RUN
    )
    assert not any(node.commands for node in chain.platform.nodes.values())
    assert chain.platform.calls == CALLS  # what had come up before it failed is taken down too


@pytest.mark.parametrize(
    ("program", "broken"),
    [
        ("hostname", "connectivity"),
        ("devices.py", "devices"),
        ("collective.py", "collectives"),
        ("training.py", "training"),
    ],
)
@pytest.mark.parametrize(
    "answer",
    [ProgramOutput("garbage\0\x1b[2J{]", 0), ProgramOutput("", 139), ProgramOutput("", hangs=True)],
)
def test_a_failing_program_affects_only_its_own_check(
    chain: Chain, program: str, broken: str, answer: ProgramOutput
) -> None:
    if answer.hangs:  # without mpirun, the time until a program is ended is real
        chain.suite = chain.suite.model_copy(
            update={"devices": Devices(timeout_s=0.3 if program == "devices.py" else 60)}
        )
    chain.platform.programs[program] = lambda request: answer
    result = chain.run()
    assert result.verdict is verdicts(result)[broken] is not Verdict.PASS
    others = set(CHECKS[CHECKS.index(broken) + 1 :])
    if broken != "connectivity":
        assert {verdicts(result)[name] for name in others} <= {Verdict.PASS}
    assert not any("\x1b" in made.reason.sentence for made in result.checks)
    assert chain.platform.calls == CALLS


@pytest.mark.parametrize("method", ["collect", "teardown", "leftovers"])
def test_failing_platform_call_loses_no_measurement(chain: Chain, method: str) -> None:
    chain.platform.errors[method] = SeatrialError(Reason.of("prerequisite-missing", step="launch"))
    result = chain.run()
    assert {name: verdicts(result)[name] for name in CHECKS} == dict.fromkeys(CHECKS, Verdict.PASS)
    assert chain.platform.calls == CALLS
    expected = Verdict.INCONCLUSIVE if method == "teardown" else Verdict.PASS
    assert result.verdict is expected


def test_leftovers_of_killed_runs_are_removed_first(chain: Chain) -> None:
    chain.platform.unclaimed = [Leftover("run-0", 5.0, "nodes")]
    chain.run()
    assert chain.platform.calls == ["leftovers", "teardown", *CALLS[1:]]


def interrupts(request: Request) -> ProgramOutput:
    """As Ctrl-C while the program runs."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    return ProgramOutput(hangs=True)


@pytest.mark.parametrize(
    "program", ["facts.py", "stream.py", "hostname", "devices.py", "collective.py", "training.py"]
)
def test_a_run_that_is_interrupted_in_a_program_takes_its_nodes_down(
    chain: Chain, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may stay silent for an hour, and is not waited for."""
    monkeypatch.setattr("seatrial.remote.node_setup.FACTS_TIMEOUT_S", 3600)
    monkeypatch.setattr("seatrial.remote.line_probe._SPARE_S", 3600)
    chain.suite = chain.suite.model_copy(update={"devices": Devices(timeout_s=3600)})
    chain.platform.nodes["node-0"].programs[program] = interrupts
    assert cut_off(chain) == CUT


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_is_cut_off_in_a_step_takes_its_nodes_down(
    chain: Chain, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_of_run, step, cut)
    assert cut_off(chain) == CUT


@pytest.mark.parametrize("name", CHECKS)
def test_a_run_that_is_cut_off_in_a_check_takes_its_nodes_down(
    chain: Chain, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until(kind: CheckType, context: CheckContext) -> StepResult:
        return try_check(kind, context) if kind.name != name else cut()

    monkeypatch.setattr(steps_of_run, "check_task", until)
    assert cut_off(chain) == CUT


def cut(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


CUT = ("inconclusive", "cut-off", ["collect", "teardown"])  # what was launched is never kept


def cut_off(chain: Chain) -> tuple[str, str, list[str]]:
    """Run until the cut: verdict and code of run.json, and what the platform did last."""
    with pytest.raises(KeyboardInterrupt):
        chain.run(keep="always")
    assert not chain.platform.kept
    assert not chain.notified
    document = json.loads((chain.out / "run.json").read_text())
    return document["verdict"], document["code"], chain.platform.calls[-2:]


def test_a_lost_lease_makes_the_run_inconclusive(chain: Chain) -> None:
    chain.lost = Reason.of("lease-lost")
    chain.platform.nodes["node-1"].refuses = True
    result = chain.run()
    assert (result.verdict, result.suspects) == (Verdict.INCONCLUSIVE, ())
    assert verdicts(result)["turn"] is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("store", ["/proc/nowhere/history.db", "no-database.sqlite"])
def test_without_its_history_a_run_cannot_pass(
    chain: Chain, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.out.mkdir()
    (chain.out.parent / "no-database.sqlite").write_text("dear diary" * 100)
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{chain.out.parent / store}")
    result = chain.run()
    assert (result.verdict, verdicts(result)["history"]) == (
        Verdict.INCONCLUSIVE,
        Verdict.INCONCLUSIVE,
    )
    assert result.reason.code == "history-unavailable"
    assert {verdicts(result)[name] for name in CHECKS} == {Verdict.PASS}


def test_an_upload_that_fails_changes_no_verdict(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    file = chain.out.parent / "file"
    file.write_text("where a folder should be")
    result = chain.run(upload=f"file://{file}")
    assert result.verdict is Verdict.PASS
    assert "upload to file://" in caplog.text
    assert not any("files: " in note for note in result.notes)


@pytest.mark.parametrize(
    ("keep", "refuses", "kept"),
    [
        ("never", True, False),
        ("on_failure", False, False),
        ("on_failure", True, True),
        ("always", False, True),
    ],
)
def test_nodes_are_kept_where_the_cluster_file_says_so(
    chain: Chain, keep: str, refuses: bool, kept: bool
) -> None:
    chain.platform.nodes["node-1"].refuses = refuses
    result = chain.run(keep=keep, keep_s=60)
    assert chain.platform.kept == ({RUN_ID: 60.0} if kept else {})
    assert ("teardown" in chain.platform.calls) is not kept
    assert any("seatrial reap" in note for note in result.notes) is kept


def test_nodes_that_cannot_be_kept_are_taken_down(chain: Chain) -> None:
    chain.platform.errors["keep"] = SeatrialError("forbidden")
    chain.run(keep="always")
    assert chain.platform.calls == [*CALLS[:3], "keep", "teardown"]


def two_speeds(models: dict[str, str]) -> FakePlatform:
    """Ten nodes, four of them with a tenth of the speed; `models` are the processors that nodes
    tell of.
    """
    platform = FakePlatform(nodes=10)
    for number, node in enumerate(platform.nodes.values()):
        if number >= 6:
            node.programs["devices.py"] = slow_devices
        node.facts["cpu_model"] = models.get("old" if number >= 6 else "new", "")
    return platform


def slow_devices(request: Request) -> str:
    answer = json.loads(programs.devices(request))
    for device in answer["devices"]:
        device |= {"matmul_tflops": [0.1], "copy_gb_s": [2.0]}
    return json.dumps(answer)


def test_fleet_of_two_cpu_models_passes_and_names_both_groups(chain: Chain) -> None:
    chain.platform = two_speeds({"new": "AMD EPYC 9654", "old": "AMD EPYC 7601"})
    result = chain.run()
    assert result.verdict is Verdict.PASS, result.reason
    (devices,) = (made for made in result.checks if made.name == "devices")
    assert devices.reason.sentence.endswith(
        "2 groups by CPU model: 6 x AMD EPYC 9654, 4 x AMD EPYC 7601"
    )
    assert {node["cpu_model"] for node in result.nodes} == {"AMD EPYC 9654", "AMD EPYC 7601"}


def test_nodes_of_two_speeds_without_a_known_model_do_not_pass(chain: Chain) -> None:
    chain.platform = two_speeds({})
    result = chain.run()
    assert (result.verdict is Verdict.PASS, list(result.suspects)) == (False, [])


def test_run_on_a_single_gpu_passes_without_collectives(chain: Chain) -> None:
    chain.platform = FakePlatform(nodes=1)
    chain.platform.nodes["node-0"].facts |= {"gpus": 1, "gpu_model": "NVIDIA H100 80GB HBM3"}
    result = chain.run(gpus_per_node=1, hardware="H100-SXM")
    assert result.verdict is Verdict.PASS
    assert {*verdicts(result)} == {*CHECKS} - {"collectives"}
    assert result.notes == (str(Reason.of("single-gpu", check="collectives")),)


@pytest.mark.parametrize(
    ("suite", "cluster"),
    [
        # Seven more GPUs are there to be asked
        ("quick", {"gpus_per_node": 8, "slots_per_node": 1}),
        ("a4-sweep", {"gpus_per_node": 1}),  # which measures nothing else of a GPU
    ],
)
def test_single_gpu_exception_for_collectives_does_not_apply_to_other_runs(
    chain: Chain, suite: str, cluster: dict[str, int]
) -> None:
    chain.platform, chain.suite = FakePlatform(nodes=1), load_suite(suite)
    facts = {
        "gpus": cluster["gpus_per_node"],
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "nccl_tests": "/usr/bin/all_reduce_perf",
    }
    chain.platform.nodes["node-0"].facts |= facts
    result = chain.run(hardware="H100-SXM", **cluster)
    (collectives,) = (each for each in result.checks if each.name == "collectives")
    assert (result.verdict, collectives.reason.code) == (Verdict.NOT_RUN, "too-few-ranks")


def test_collectives_with_a_single_cpu_rank_are_not_run(chain: Chain) -> None:
    chain.platform = FakePlatform(nodes=1)
    result = chain.run()
    (collectives,) = (each for each in result.checks if each.name == "collectives")
    assert (result.verdict, collectives.reason.code) == (Verdict.NOT_RUN, "too-few-ranks")
