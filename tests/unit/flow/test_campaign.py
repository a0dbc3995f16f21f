"""Campaigns on the fake platform: phases are runs, nodes that break are left out, and what was
killed is resumed.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from seatrial.campaign.drift import DRIFT, LEAST_PHASES
from seatrial.campaign.loop import PAUSES_S, Loop
from seatrial.checks.suites import Campaign, SuiteFile
from seatrial.config.run import Run, Suite
from seatrial.flows import campaign as flow
from seatrial.flows import chain as steps_of_run
from seatrial.history import open_store
from seatrial.history.campaigns import CampaignState
from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.run_state import RunState
from tests.unit.flow.conftest import STEPS, Chain

NET = {"name": "net", "devices": None}
BURN = {"name": "burn", "devices": {"seconds": 0.1}}
Before = Callable[[int], None]


def _suite(minutes: float) -> Suite:
    phases = [{"suite": NET}, {"suite": BURN, "synchronised": True}]
    return SuiteFile.model_validate(
        {"name": "soak", "campaign": {"minutes": minutes, "phases": phases}}
    )


class Soak:
    """A campaign over the nodes of `chain`; each phase counts as one minute, and `before` is called
    before each.
    """

    def __init__(self, chain: Chain, before: Before = lambda nth: None) -> None:
        self.chain, self.before, self.waited = chain, before, list[float]()
        self.phases: list[Run] = []

    def run(self, minutes: float, **cluster: Any) -> RunResult:
        run = Run("soak-1", self.chain.platform.cluster(**cluster), _suite(minutes), self.chain.out)
        section = run.suite.section(Campaign)
        assert section is not None
        ids = count(len(self.phases) + 1)
        with open_store() as store:

            def publish(run_state: RunState) -> RunResult:
                steps_of_run.publish_results(run_state, store, notify=False)
                return steps_of_run.rewrite_run_json(run_state)

            return flow.run_campaign(
                run, section, store, self._phase, publish, lambda: f"phase-{next(ids)}"
            )

    def _phase(self, run: Run) -> RunResult:
        self.phases.append(run)
        self.before(len(self.phases))
        result = steps_of_run.run_chain(run, notify=False, rebuild=False, wait_s=0)
        nodes_up = {"devices": 60.0} if result.nodes else {}
        return replace(result, timings=nodes_up)

    @property
    def state(self) -> CampaignState:
        with open_store() as store:
            campaign_state = store.campaign("fake", "soak")
        assert campaign_state is not None
        return campaign_state


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "show_campaign", lambda *_: None)
    monkeypatch.setattr(flow, "Loop", partial(Loop, wait=lambda seconds: None))


def test_campaign_repeats_its_phases_until_its_time_is_over(chain: Chain) -> None:
    soak = Soak(chain)
    result = soak.run(minutes=3)
    assert [run.suite.name for run in soak.phases] == ["net", "burn", "net"]
    assert (result.checks[0].verdict, result.checks[0].reason.code) == (
        Verdict.PASS,
        "campaign-passed",
    )
    assert (result.verdict, result.checks[2].reason.code) == (
        Verdict.NOT_RUN,
        "drift-too-few-phases",
    )
    assert result.coverage.extent == "some", (
        "phases that were compared with nothing are no whole pass"
    )
    with open_store() as store:
        assert {row.run_id for row in store.runs("fake")} == {
            "phase-1",
            "phase-2",
            "phase-3",
            "soak-1",
        }
    assert (soak.state.ended, soak.state.spent_s) == (True, 180)


def test_campaign_at_work_is_not_taken_for_a_killed_one(chain: Chain) -> None:
    def begin_again(nth: int) -> None:
        with pytest.raises(MissingError, match=r"fake\.soak is being checked by run soak-1 since"):
            Soak(chain).run(minutes=2)

    soak = Soak(chain, begin_again)
    soak.run(minutes=2)
    assert [(each.run_id, each.code) for each in soak.state.phases] == [
        ("phase-1", "all-pass"),
        ("phase-2", "all-pass"),
    ]


@pytest.mark.parametrize(("cores", "verdict"), [(None, Verdict.PASS), (2, Verdict.INCONCLUSIVE)])
def test_two_nodes_are_judged_for_drift_unless_they_share_one_machine(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, cores: int | None, verdict: Verdict
) -> None:
    launch = STEPS["launch_task"]
    monkeypatch.setattr(
        steps_of_run, "launch_task", lambda run: replace(launch(run), shared_cores=cores)
    )
    result = Soak(chain).run(minutes=2 * LEAST_PHASES, nodes=2)
    (drift,) = [made for made in result.checks if made.name == DRIFT]
    assert (drift.verdict, bool(drift.judgements)) == (verdict, cores is None)
    with open_store() as store:
        phase = store.result("phase-1")
    assert phase is not None and phase.setup is not None
    assert phase.setup.one_machine is (cores is not None)


def test_a_node_that_breaks_is_left_out_and_named(chain: Chain) -> None:
    def refuse(nth: int) -> None:
        chain.platform.nodes["node-1"].refuses = nth >= 2

    soak = Soak(chain, refuse)
    result = soak.run(minutes=4)
    assert [len(run.cluster.node_names()) for run in soak.phases] == [3, 3, 2, 2]
    assert result.verdict is Verdict.FAIL
    assert [(each.name, each.evidence.code) for each in result.suspects] == [
        ("node-1", "campaign-left-out")
    ]
    assert "left out: node-1 since hour 0.03" in " ".join(soak.state.lines())


def test_nodes_that_break_together_are_not_left_out(chain: Chain) -> None:
    def refuse(nth: int) -> None:
        for name in ("node-1", "node-2"):
            chain.platform.nodes[name].refuses = nth == 1

    soak = Soak(chain, refuse)
    result = soak.run(minutes=2)
    assert soak.state.left_out == ()
    assert "look for a common cause" in result.checks[0].reason.sentence
    assert result.verdict is Verdict.FAIL


def test_a_phase_whose_nodes_were_taken_away_is_repeated(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    soak, phase = Soak(chain), Soak._phase
    taken = Reason.of("slurm-job-cancelled", job="7", how="cancelled", detail="")

    def second_is_taken(soak: Soak, run: Run) -> RunResult:
        result = phase(soak, run)
        if len(soak.phases) != 2:
            return result
        return replace(result, verdict=Verdict.INCONCLUSIVE, reason=taken)

    monkeypatch.setattr(Soak, "_phase", second_is_taken)
    result = soak.run(minutes=3)
    assert [run.suite.name for run in soak.phases] == ["net", "burn", "burn", "net"]
    assert soak.state.phases[1].code == "slurm-job-cancelled"
    assert soak.state.spent_s == 180
    assert result.checks[0].verdict is Verdict.PASS


def test_a_killed_campaign_goes_on_where_it_was(chain: Chain) -> None:
    class Killed(BaseException):
        pass

    def kill(nth: int) -> None:
        if nth == 3:
            raise Killed

    soak = Soak(chain, kill)
    with pytest.raises(Killed):
        soak.run(minutes=4)
    assert soak.state.phases[-1].verdict is None
    result = soak.run(minutes=4)
    assert [run.suite.name for run in soak.phases] == ["net", "burn", "net", "net", "burn"]
    assert [(phase.seconds, phase.code) for phase in soak.state.phases][2] == (0, "run-killed")
    assert result.checks[0].verdict is Verdict.PASS
    soak.run(minutes=4)
    assert len(soak.phases) == 9, "one that has ended is not resumed"


def test_changed_campaign_plan_starts_from_zero(chain: Chain) -> None:
    soak = Soak(
        chain, lambda nth: chain.platform.errors.update(launch=LaunchError(Reason.of("no-testbed")))
    )
    soak.run(minutes=4)
    del chain.platform.errors["launch"]
    soak.before = lambda nth: None
    soak.run(minutes=2)
    assert soak.state.spent_s == 120


def test_campaign_that_gets_no_nodes_retries_and_stays_resumable(chain: Chain) -> None:
    soak = Soak(
        chain, lambda nth: chain.platform.errors.update(launch=LaunchError(Reason.of("no-testbed")))
    )
    result = soak.run(minutes=4)
    assert len(soak.phases) == len(PAUSES_S) + 1
    assert (result.verdict, result.checks[0].reason.code) == (
        Verdict.INCONCLUSIVE,
        "campaign-stuck",
    )
    assert not soak.state.ended


def test_campaign_with_too_few_nodes_begins_again_once_they_are_repaired(chain: Chain) -> None:
    def refuse(nth: int) -> None:
        chain.platform.nodes["node-1"].refuses = 2 <= nth <= 3
        chain.platform.nodes["node-2"].refuses = nth == 3

    soak = Soak(chain, refuse)
    result = soak.run(minutes=4)
    assert result.checks[0].reason.code == "campaign-too-few-nodes"
    assert len(soak.phases) == 3
    assert soak.run(minutes=4).checks[0].reason.code == "campaign-passed"
    assert len(soak.phases) == 7
