"""The result of a campaign: the verdict over its phases, and the nodes that it left out. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from seatrial.history.campaigns import CampaignState
from seatrial.history.rows import RunRow
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, join, placed
from seatrial.model.result import Check, Expected, Judgement, Suspect
from seatrial.model.verdict import Verdict, worst
from seatrial.text.words import count

CAMPAIGN = "campaign"
Runs = Mapping[str, RunRow]  # rows of the history by run id


def campaign_check(
    state: CampaignState,
    runs: Runs,
    stopped: Reason | None,
    notes: Sequence[Reason],
) -> Check:
    """Return the check `campaign`.

    `runs` are the phases by run id. `stopped` is the reason if it ended before its time.
    """
    suspects = tuple(_left_out(state))
    left_out = [placed(suspect.name, suspect.evidence) for suspect in suspects]
    reasons = [stopped, *left_out, *notes, *_failed(state, runs)]
    verdicts = [phase.verdict for phase in state.counted if phase.verdict]
    if suspects:
        verdicts.append(Verdict.FAIL)
    if stopped or not state.counted:
        verdicts.append(Verdict.INCONCLUSIVE)
    passed = Reason.of(
        "campaign-passed",
        phases=count(len(state.counted), "phase"),
        hours=f"{state.spent_s / 3600:.2f}",
    )
    judgements = tuple(_judgements(state, runs))
    return Check(
        name=CAMPAIGN,
        verdict=worst(verdicts),
        reason=join(reasons) or passed,
        seconds=state.spent_s,
        measurements=tuple(judgement.measurement for judgement in judgements),
        judgements=judgements,
        suspects=suspects,
    )


def check_of(
    name: str, judgements: Sequence[Judgement], passed: Reason, known: Sequence[Verdict] = ()
) -> Check:
    """Return a check of these judgements, which blames the parts that did not pass.

    `passed` is its reason if all did; `known` are further verdicts.
    """
    bad = [judgement for judgement in judgements if not judgement.passed]
    suspects = []
    for judgement in bad:
        part = judgement.measurement.subject
        if part.kind in ("node", "gpu", "link"):  # not the whole cluster, or a group
            suspects.append(
                Suspect(part.kind, part.name, 0.9, judgement.reason, verdict=judgement.verdict)
            )
    return Check(
        name=name,
        verdict=worst((*known, *(judgement.verdict for judgement in judgements))),
        reason=join(judgement.reason for judgement in bad) or passed,
        measurements=tuple(judgement.measurement for judgement in judgements),
        judgements=tuple(judgements),
        suspects=tuple(suspects),
    )


def _failed(state: CampaignState, runs: Runs) -> Iterator[Reason]:
    """Yield a reason for the phases that did not pass; those of one suite that failed alike share
    one.
    """
    alike = defaultdict(list)
    for phase in state.counted:
        row = runs.get(phase.run_id)
        if phase.verdict is not Verdict.PASS and row is not None:
            alike[phase.suite, phase.code].append(row)
    for (suite, _), rows in alike.items():
        first = rows[0]
        yield Reason.of(
            "campaign-phases-failed",
            count=len(rows),
            of=sum(phase.suite == suite for phase in state.counted),
            suite=suite,
            reason=first.reason,
            run=first.run_id,
        )


def _left_out(state: CampaignState) -> Iterator[Suspect]:
    """Yield the nodes that the campaign left out, with the hour and the code."""
    for out in state.left_out:
        reason = Reason.of(
            "campaign-left-out",
            hour=f"{out.since_s / 3600:.2f}",
            what=out.code or "broken",
            run=out.run_id,
        )
        yield Suspect("node", out.node, 1.0, reason)


def _judgements(state: CampaignState, runs: Runs) -> Iterator[Judgement]:
    """Yield judgements of the campaign's hours, and of the number of passed phases without a
    baseline.
    """
    whole = Subject("cluster", state.cluster)
    verdict = Verdict.PASS if state.is_over else Verdict.INCONCLUSIVE
    hours = Measurement(
        metric="campaign_hours", value=state.spent_s / 3600, unit="h", subject=whole
    )
    goal = Expected(low=state.goal_s / 3600)
    yield Judgement(
        measurement=hours, verdict=verdict, reason=Reason(), source="suite", expected=goal
    )
    phases = [runs[phase.run_id] for phase in state.counted if phase.run_id in runs]
    alone = sum(row.lacks_baseline for row in phases)
    if alone:
        uncompared = Measurement(
            metric="uncompared_phases", value=alone, unit="", subject=whole, better="lower"
        )
        yield Judgement(
            measurement=uncompared, verdict=Verdict.PASS, reason=Reason(), source="sanity"
        )
