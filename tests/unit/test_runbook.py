"""Every reason that the code can give has a code, so that the runbook, which is made from the
catalog, has it.

A reason is what an error of ours says, what stands behind a bad verdict, what blames a node, and
what the modules in WORDS return.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from tests.sources import ROOT, modules, nodes

BAD = {"DEGRADED", "FAIL", "CORRUPT", "INCONCLUSIVE", "NOT_RUN"}
MAKERS = {"Queued", "Suspect", "Unfinished"}
NAMES = {"evidence", "lacking", "reason", "strange", "why"}  # of variables
WORDS = (  # what these return is shown as it is
    "seatrial/checks/collectives/logs.py",
    "seatrial/config/architecture.py",
    "seatrial/checks/contract.py",
    "seatrial/checks/training/result.py",
    "seatrial/checks/collectives/problems.py",
    *(f"seatrial/logs/{name}.py" for name in ("judge", "outcome", "cluster", "against")),
    "seatrial/catalog/log_facts.py",
    "seatrial/checks/connectivity/check.py",
    "seatrial/checks/connectivity/facts.py",
    "seatrial/checks/connectivity/inventory.py",
    "seatrial/checks/connectivity/slow_paths.py",
    "seatrial/checks/connectivity/versions.py",
    "seatrial/platforms/docker/daemon.py",
    "seatrial/platforms/docker/platform.py",
    "seatrial/platforms/kubernetes/api.py",
    "seatrial/platforms/kubernetes/doctor.py",
    "seatrial/platforms/kubernetes/ending.py",
    "seatrial/platforms/kubernetes/waiting.py",
    "seatrial/platforms/local/platform.py",
    "seatrial/checks/collectives/check.py",
)
PARTS = {  # of longer reasons, of plans, or before bad input
    "… node… with …",
    "because …",
    "in image …",
    "less than the … that /dev/shm may take",
    "no node",
    "no reason is given",
    "not a file name",
    "not measured",
    "on every node",
    "seatrial: …",
    "while the run used it…",
    "while the run used it, with what the run had submitted",
}


def reasons() -> dict[str, str]:
    """Each reason, `…` for what it is filled in with, and where it is made."""
    trees = {path.relative_to(ROOT).as_posix(): nodes(path) for path in modules()}
    errors = _errors(
        [node for tree in trees.values() for node in tree if isinstance(node, ast.ClassDef)]
    )
    places = {
        _plain(text): f"{name}:{getattr(node, 'lineno', 0)}"
        for name, tree in trees.items()
        for node in tree
        for text in _reasons_in(node, errors, shown=name in WORDS)
    }
    return {text: where for text, where in places.items() if _tells(text) and text not in PARTS}


def _errors(classes: Sequence[ast.ClassDef]) -> set[str]:
    """Our errors that end in a run's reason; InputError names file, field and what is legal by
    itself.
    """
    names, before = {"SeatrialError"}, 0
    while len(names) > before:
        before = len(names)
        names |= {
            c.name
            for c in classes
            for base in c.bases
            if isinstance(base, ast.Name) and base.id in names
        }
        names.discard("InputError")
    return names


def _reasons_in(node: ast.AST, errors: set[str], *, shown: bool) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in errors:
            yield from _texts(first)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if (
            name in MAKERS
        ):
            yield from (text for arg in args for text in _texts(arg))
        case ast.Call(
            func=ast.Attribute(attr="append", value=ast.Attribute(attr="problems")), args=[problem]
        ):
            yield from _texts(problem)
        case ast.Call(args=parts) | ast.Tuple(elts=parts):
            for verdict, reason in pairwise(parts):
                if _is_bad(verdict):
                    yield from _texts(reason)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in NAMES:
            yield from _texts(value)
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value) if shown:
            yield from _texts(value)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(values=values)) if (
            shown and name.isupper()
        ):
            yield from (text for value in values for text in _texts(value))
        case _:
            return


def _is_bad(verdict: ast.expr) -> bool:
    match verdict:
        case ast.Attribute(attr=name):
            return name in BAD
        case ast.IfExp(body=one, orelse=other):
            return _is_bad(one) or _is_bad(other)
    return False


def _texts(value: ast.expr) -> Iterator[str]:
    """The texts that an expression may come to."""
    match value:
        case ast.Call(func=ast.Name(id="uncoded"), args=[text]):
            yield from _texts(text)
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts
            )
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))
        case ast.BoolOp(values=several) | ast.List(elts=several) | ast.Tuple(elts=several):
            yield from (text for each in several for text in _texts(each))
        case ast.ListComp(elt=each) | ast.GeneratorExp(elt=each):
            yield from _texts(each)
        case _:
            return


def _tells(text: str) -> bool:
    """Whether it is more than a place for somebody else's words; what begins with a space or a mark
    is a part.
    """
    return (
        sum(map(str.isalpha, text)) >= 5 and " " in text and (text[0].isalnum() or text[0] == "…")
    )


def _plain(text: str) -> str:
    """Two values in a row are one place."""
    return re.sub("…+", "…", " ".join(text.split()))


def test_every_reason_has_a_code() -> None:
    """A reason is `Reason.of(code, ...)`, with the code in reasons.csv."""
    without = [f"{where}: {reason}" for reason, where in reasons().items()]
    assert not without, "reasons without a code:\n" + "\n".join(without)


def test_reasons_written_in_the_code_always_have_a_code() -> None:
    """Sentences of the program are `Reason.of(code, ...)`, also those of a pass."""
    written = [
        f"{path.name}:{node.lineno}: {text}"
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "uncoded"
        for text in _texts(node.args[0])
        if text
    ]
    assert not written, "sentences of the program itself:\n" + "\n".join(written)


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ('raise LaunchError(f"the {x} is on fire: {y}")', ["the … is on fire: …"]),
        ('raise InputError(f"{x}: must be a number")', []),
        ('return Verdict.FAIL if bad else Verdict.INCONCLUSIVE, f"no end of {x}"', ["no end of …"]),
        ('return Verdict.PASS, "all is well"', []),
        ('Check("teardown", Verdict.NOT_RUN, "nothing came up")', ["nothing came up"]),
        ('why = "it is " + "late" if x else f"node {n} is late"', ["node … is late"]),
    ],
)
def test_reasons_are_found_in_code(code: str, texts: list[str]) -> None:
    made = [
        text
        for node in ast.walk(ast.parse(code))
        for text in _reasons_in(node, {"LaunchError"}, shown=False)
    ]
    assert made == texts
