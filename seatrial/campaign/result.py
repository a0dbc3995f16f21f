"""The result of a campaign: the verdict over its phases, and the nodes that it left out. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from seatrial.history.campaigns import CampaignState
from seatrial.history.rows import RunRow
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import Check, Expected, Judgement, Suspect
from seatrial.model.verdict import Verdict, worst
from seatrial.text.words import count

CAMPAIGN = "campaign"


def campaign_check(
    state: CampaignState,
    runs: Mapping[str, RunRow],
    stopped: Reason | None,
    notes: Sequence[Reason],
) -> Check:
    """Return the check `campaign`; `runs` are the phases by run id, `stopped` is why it ended
    before its time.
    """
    bad = list(_failed(state, runs))
    suspects = tuple(_left_out(state))
    reasons = [stopped, *(placed(each.name, each.evidence) for each in suspects), *notes, *bad]
    verdicts = [phase.verdict for phase in state.counted if phase.verdict]
    verdicts += [Verdict.FAIL] if suspects else []
    verdicts += [Verdict.INCONCLUSIVE] if stopped or not state.counted else []
    passed = Reason.of(
        "campaign-passed",
        phases=count(len(state.counted), "phase"),
        hours=f"{state.spent_s / 3600:.2f}",
    )
    judgements = tuple(_judgements(state, runs))
    return Check(
        CAMPAIGN,
        worst(verdicts),
        join(reasons) or passed,
        state.spent_s,
        tuple(judgement.measurement for judgement in judgements),
        judgements,
        suspects,
    )


def _failed(state: CampaignState, runs: Mapping[str, RunRow]) -> Iterator[Reason]:
    """Yield the phases that did not pass, those of one suite that failed alike together."""
    alike: dict[tuple[str, str | None], list[RunRow]] = {}
    for phase in state.counted:
        row = runs.get(phase.run_id)
        if phase.verdict is not Verdict.PASS and row is not None:
            alike.setdefault((phase.suite, phase.code), []).append(row)
    for (suite, _), rows in alike.items():
        of = sum(phase.suite == suite for phase in state.counted)
        first = rows[0]
        yield Reason.of(
            "campaign-phases-failed",
            count=len(rows),
            of=of,
            suite=suite,
            reason=first.reason,
            run=first.run_id,
        )


def _left_out(state: CampaignState) -> Iterator[Suspect]:
    for out in state.left_out:
        hour, code = f"{out.since_s / 3600:.2f}", out.code or "broken"
        yield Suspect(
            "node",
            out.node,
            1.0,
            Reason.of("campaign-left-out", hour=hour, what=code, run=out.run_id),
        )


def _judgements(state: CampaignState, runs: Mapping[str, RunRow]) -> Iterator[Judgement]:
    """Yield judgements of the campaign's hours, and of the number of passed phases without a
    baseline.
    """
    whole = Subject("cluster", state.cluster)
    hours, goal = state.spent_s / 3600, state.goal_s / 3600
    verdict = Verdict.PASS if state.is_over else Verdict.INCONCLUSIVE
    measured = Measurement("campaign_hours", hours, "h", whole)
    yield Judgement(measured, verdict, Reason(), "suite", Expected(low=goal))
    phases = [runs[phase.run_id] for phase in state.counted if phase.run_id in runs]
    if alone := sum(row.lacks_baseline for row in phases):
        measured = Measurement("uncompared_phases", alone, "", whole, better="lower")
        yield Judgement(measured, Verdict.PASS, Reason(), "sanity")
