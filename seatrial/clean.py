"""A run without the secrets that its logs may have put into what it says. Pure."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from seatrial.redact import Secrets
from seatrial.result import Check, Judgement, RunResult, Suspect
from seatrial.verdict import Verdict

Clean = Callable[[str], str]


def cleaner(secrets: Secrets) -> Clean:
    """Takes `secrets`, and what looks like one, out of a text. The same text is looked at once."""

    @cache
    def clean(text: str) -> str:
        return "".join(secrets.out_of(text.splitlines(keepends=True)))

    return clean


def without_secrets(result: RunResult, secrets: Secrets) -> RunResult:
    """The run with clean reasons, evidence, notes and facts; numbers and the names of nodes are no secrets."""
    clean = cleaner(secrets)
    return replace(
        result,
        reason=clean(result.reason),
        notes=tuple(map(clean, result.notes)),
        fingerprint={name: clean(version) for name, version in result.fingerprint.items()},
        suspects=tuple(_suspect(suspect, clean) for suspect in result.suspects),
        checks=tuple(_check(check, clean) for check in result.checks),
    )


def _suspect(suspect: Suspect, clean: Clean) -> Suspect:
    return replace(suspect, evidence=clean(suspect.evidence))


def _check(check: Check, clean: Clean) -> Check:
    judgements = tuple(_judgement(judgement, clean) for judgement in check.judgements)
    suspects = tuple(_suspect(suspect, clean) for suspect in check.suspects)
    return replace(check, reason=clean(check.reason), judgements=judgements, suspects=suspects)


def _judgement(judgement: Judgement, clean: Clean) -> Judgement:
    """What passes is not told, so its reason does not matter: a thousand nodes have a hundred thousand of them."""
    return judgement if judgement.verdict is Verdict.PASS else replace(judgement, reason=clean(judgement.reason))
