"""`seatrial explain`: what the code of a reason means, and what to do."""

import textwrap

import click

from seatrial.cli.options import json_option, print_json
from seatrial.model.errors import InputError
from seatrial.runs.explanations import CATALOG, current
from seatrial.text.printable import printable
from seatrial.text.similar import nearest_of

_SHOWN_CHARS = 100


@click.command()
@click.argument("code")
@json_option
def explain(code: str, as_json: bool) -> None:
    """Print what the CODE of a reason means, and the next step.

    The code is in run.json beside the reason, and in the report.
    """
    explanation = CATALOG.get(current(code))
    if explanation is None:
        raise InputError(_unknown(code))
    if as_json:
        fields = {"reason": explanation.pattern, "meaning": explanation.meaning, "next_step": explanation.next_step}
        print_json({"code": code, **fields})
        return
    lines = {"reason": explanation.pattern, "meaning": explanation.meaning, "next step": explanation.next_step}
    print(code)
    for name, text in ((name, text) for name, text in lines.items() if text):
        print(textwrap.fill(text, 100, initial_indent=f"  {name:<11}", subsequent_indent=" " * 13))


def _unknown(code: str) -> str:
    legal = nearest_of(code[:_SHOWN_CHARS], CATALOG) or "docs/runbook.md lists the codes"
    return f"CODE: {printable(code[:_SHOWN_CHARS])!r} is not a code; {legal}"
