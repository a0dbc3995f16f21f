"""Read `dcgmi diag`, its table and its JSON of DCGM 2 to 4. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.model.verdict import Verdict
from seatrial.readers.documents import items, listed
from seatrial.readers.report import MAX_WORDS, SAYS_BAD, Report, Result
from seatrial.text.printable import printable

_MAX_TEXT = 16 << 20
_TOOL = "dcgmi diag"
_VERDICTS = {"pass": Verdict.PASS, "fail": Verdict.FAIL, "warn": Verdict.DEGRADED}
_OUTCOME = re.compile(r"(pass|fail|warn|skip)\w*(?: - (.{1,80}))?$", re.IGNORECASE)


def read_diag(lines: Sequence[str]) -> Report:
    """Read the rows `| GPU Memory | Fail - GPU: 0 |` and, without a name, more results of the same test."""
    results: list[Result] = []
    test, in_message = "", False
    for cells in (line.split("|")[1:3] for line in lines if line.lstrip().startswith("|")):
        label, value = (cell.strip() for cell in cells) if len(cells) == 2 else ("", "")
        outcome = _OUTCOME.match(value)
        if label in ("Warning", "Error", "Info") or (in_message and not label and not outcome):
            in_message = True
            if results and results[-1].verdict is not Verdict.PASS and label != "Info":
                last = results[-1]
                results[-1] = Result(last.verdict, last.code, f"{last.words}{': ' if label else ''}{value}")
            continue
        test, in_message = label or test, False
        if outcome and (verdict := _VERDICTS.get(outcome[1].lower())):
            where = f" on {outcome[2]}" if outcome[2] else ""
            results.append(Result(verdict, SAYS_BAD, f"{test} {outcome[1].lower()}{where}"))
    return Report(_TOOL, tuple(results))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one test of `dcgmi diag`, and the numbers of its GPUs; none where it names no GPU."""

    verdict: Verdict
    words: str
    gpus: tuple[int, ...]


def read_diagnoses(text: str) -> list[Diagnosis]:
    """The results in the JSON that `dcgmi diag -j` prints, which may stand behind warnings; none in another text."""
    try:
        document = json.JSONDecoder().raw_decode(text[:_MAX_TEXT], max(text.find("{"), 0))[0]
    except (ValueError, RecursionError):
        return []
    return list(_diagnoses(document))


def read_document(document: dict[str, Any]) -> Report | None:
    """The report of `dcgmi diag --json`; None for another document."""
    if not any("DCGM" in key and "iagnos" in key for key in document):
        return None
    return Report(_TOOL, tuple(Result(each.verdict, SAYS_BAD, each.words) for each in _diagnoses(document)))


def _diagnoses(document: Any) -> Iterator[Diagnosis]:
    for value in document.values() if isinstance(document, dict) else ():
        for category in items(value, "test_categories"):
            for test in items(category, "tests"):
                for result in items(test, "results"):
                    yield from _diagnosis(test, result)


def _diagnosis(test: dict[str, Any], result: dict[str, Any]) -> Iterator[Diagnosis]:
    status = str(result.get("status", "")).lower()
    verdict = next((verdict for word, verdict in _VERDICTS.items() if status.startswith(word)), None)
    if verdict is None:
        return
    group = result.get("entity_group", "GPU")
    ids = next((result[key] for key in ("gpu_ids", "gpu_id", "entity_id") if key in result), "?")
    warnings = [_warning_text(each) for each in listed(result.get("warnings"))]
    words = ": ".join((f"{test.get('name')} {status} on {group} {ids}", *warnings[:1]))
    numbers = re.findall(r"\d{1,4}", str(ids)) if group == "GPU" else []
    yield Diagnosis(verdict, printable(words)[:MAX_WORDS], tuple(map(int, numbers)))


def _warning_text(warning: Any) -> str:
    return str(warning.get("warning", "")) if isinstance(warning, dict) else str(warning)
