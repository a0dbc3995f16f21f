"""`seatrial explain`: the meaning of a code, a word of results, or a field of a file."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from seatrial.cli import complete
from seatrial.cli.options import json_option, print_json
from seatrial.model.errors import InputError
from seatrial.model.explanations import explanation_of
from seatrial.text.docs import with_addresses
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from seatrial.config.fields import Field

_SHOWN = 100  # characters of a name that is not known


@click.command()
@click.argument("names", metavar="NAME", nargs=-1, required=True, shell_complete=complete.codes)
@json_option
def explain(names: tuple[str, ...], as_json: bool) -> None:
    """Print what NAME means: a code, a verdict, check, metric, unit or source of a result, or a
    field of a file.

    The code is in run.json beside the reason, and in the report. A field of cluster and suite files
    is named by its path, platform.queue, or by its own name.
    """
    from seatrial.runs.explanations import CATALOG, current

    name = " ".join(names)
    explanation = CATALOG.get(current(name))
    if explanation is None:
        # Every check, which brings the codes of other packages
        from seatrial.runs.vocabulary import look_up

        explanation = explanation_of(name)
    if explanation:
        texts = {
            "reason": explanation.pattern,
            "meaning": explanation.meaning,
            "next_step": explanation.next_step,
        }
        if as_json:
            print_json({"code": name, **texts})
        else:
            _print_texts(name, texts)
        return
    words = [word.to_dict() for word in look_up(name)]
    fields = _fields_named(name)
    if not words and not fields:
        raise InputError(f"NAME: {printable(name[:_SHOWN])!r} is {_not_known(name[:_SHOWN])}")
    if as_json:
        print_json([*words, *fields])
        return
    for word in words:
        title, *others = word.items()
        _print_texts(
            str(title[1]), {key.removesuffix("_status"): str(value) for key, value in others}
        )
    for field in fields:
        texts = {key: str(field[key]).replace("`", "") for key in ("meaning", "legal")}
        _print_texts(
            field["path"],
            {
                "in": "; ".join(field["files"]),
                **texts,
                "default": (field["default"] or "required").replace("`", ""),
            },
        )


def _fields_named(name: str) -> list[dict[str, Any]]:
    """Return each field with that path or name."""
    files_by_field: dict[tuple[str, Field], list[str]] = {}
    for path, field, file in _fields():
        if name in (path, field.name):
            files_by_field.setdefault((path, field), []).append(file)
    return [
        {"path": path, "files": files, **asdict(field)}
        for (path, field), files in files_by_field.items()
    ]


def _fields() -> "Iterator[tuple[str, Field, str]]":
    """Yield the path of each field, and the kind of file that has it."""
    from seatrial.checks.suites import SuiteFile
    from seatrial.config.cluster import Cluster
    from seatrial.config.fields import sections

    for file, model in (("cluster file", Cluster), ("suite file", SuiteFile)):
        for section in sections(model):
            for path, field in section.paths():
                yield path, field, ", ".join(filter(None, (file, section.kind)))


def _not_known(name: str) -> str:
    from seatrial.runs.explanations import CATALOG
    from seatrial.runs.vocabulary import words
    from seatrial.text.words import nearest_of

    paths = [each for path, field, _ in _fields() for each in (path, field.name)]
    lists = (
        "docs/runbook.md lists the codes, docs/checks.md checks and metrics, "
        "docs/cluster-file.md the fields"
    )
    legal = nearest_of(name, [*CATALOG, *(word.name for word in words()), *paths]) or lists
    return f"neither a code nor a verdict, check, metric, unit or field; {legal}"


def _print_texts(title: str, texts: Mapping[str, str | None]) -> None:
    print(title)
    for name, text in texts.items():
        if text:
            print(
                textwrap.fill(
                    with_addresses(text),
                    100,
                    break_on_hyphens=False,
                    initial_indent=f"  {name.replace('_', ' '):<11}",
                    subsequent_indent=" " * 13,
                )
            )
