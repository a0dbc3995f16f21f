"""`seatrial rejudge`: a run that is over, by the rules and pins of today."""

import sys
from typing import TYPE_CHECKING, NoReturn

import click

from seatrial.cli.options import baseline_option, json_option, print_json
from seatrial.model.coverage import exit_status

if TYPE_CHECKING:
    from seatrial.model.result import RunResult


@click.command()
@click.argument("run_word", metavar="RUN")
@baseline_option
@json_option
def rejudge(run_word: str, require_baseline: bool, as_json: bool) -> NoReturn:
    """Judge RUN again with the current rules and pinned baselines and the runs before it. Changes nothing.

    RUN is an id of `seatrial history`, a run's folder, or its run.json. Exit status: as for `seatrial run`.
    """
    from seatrial.history import open_store
    from seatrial.runs.find import run_of
    from seatrial.runs.rejudge import rejudge as judge_again

    was = run_of(run_word)
    with open_store() as store:
        now = judge_again(was, store)
    if as_json:
        print_json(now.to_dict())
    else:
        _show(was, now)
    sys.exit(exit_status(now.verdict, now.coverage, require_baseline))


def _show(was: "RunResult", now: "RunResult") -> None:
    """What it was, each check, and `verdict: reason` as the last line."""
    from seatrial.text.words import plain, verdict_line

    print(plain(f"{was.run_id} was {was.verdict.value}: {was.reason}"))
    for old, new in zip(was.checks, now.checks, strict=True):
        before = "" if old.verdict is new.verdict else f" (was {old.verdict.value})"
        print(plain(f"{new.name}: {new.verdict.value}{before}: {new.reason}"))
    print(plain(verdict_line(now.verdict, now.coverage, now.reason)))
