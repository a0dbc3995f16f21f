"""Read the result of a training: results.json, or the JSON lines that `seatrial probe training`
prints. Pure.

The keys of results.json are in docs/judging-logs.md. A throughput is compared with a published one
by the judge.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.verdict import Verdict
from seatrial.readers.documents import finite, items
from seatrial.readers.report import Report, Result
from seatrial.text.lazy_pattern import lazy
from seatrial.text.printable import printable
from seatrial.text.words import number

Document = Mapping[str, Any]
NOT_FINITE = "training-result-not-finite"
DIFFER = "training-result-differs"
NOT_LEARNED = "training-result-not-learned"
WRONG_SUM = "training-result-wrong-sum"
EVENT = lazy(r'\s{0,40}\{"event": ?"(?:step|summary|all_reduce)"')
_THROUGHPUT = (
    "throughput_samples_per_second",
    "throughput_samples_s",
    "samples_per_second",
    "throughput",
)
_RANKS = ("world_size", "num_gpus", "gpus", "ranks")
_BATCH = ("batch_size_per_gpu", "batch_per_rank", "batch_per_gpu")
_FIRST = ("loss_start", "first_loss", "initial_loss")
_LAST = ("loss_end", "last_loss", "final_loss")
_TEXTS = ("model", "precision", "data", "device")


def read_document(document: dict[str, Any]) -> Report | None:
    """Return the report of results.json; None for another document."""
    if not any(key in document for key in (*_THROUGHPUT, *_LAST)):
        return None
    return _report(document, is_whole=True)


def read_events(lines: Sequence[str]) -> Report | None:
    """Return the report of the JSON lines of a training or of its sums; None if no line is
    whole.
    """
    events = [event for line in lines if isinstance(event := _event(line), dict)]
    if not events:
        return None
    summary = next((event for event in reversed(events) if event.get("event") == "summary"), {})
    steps = [event for event in events if event.get("event") == "step"]
    results = [_wrong_sum(event) for event in events if event.get("event") == "all_reduce"]
    lost = next(
        (event for event in steps if "loss" in event and finite(event["loss"]) is None), None
    )
    if lost:
        results.append(
            Result(
                Verdict.CORRUPT, NOT_FINITE, f"the loss of step {lost.get('step')} is not finite"
            )
        )
    if steps and not summary and not lost:
        return Report(f"training that ends at step {steps[-1].get('step')}")
    whole = _report(summary, is_whole=bool(summary))
    return Report(
        tool=whole.tool, results=(*results, *whole.results), measurements=whole.measurements
    )


def _report(document: Document, is_whole: bool) -> Report:
    results = list(_results(document)) if is_whole else []
    return Report(
        tool=_tool(document), results=tuple(results), measurements=tuple(_measurements(document))
    )


def _results(document: Document) -> Iterator[Result]:
    first, last = (_first(document, keys) for keys in (_FIRST, _LAST))
    ranks = items(document, "ranks")
    broken = [rank for rank in ranks if rank.get("finite") is False]
    if broken or any(
        key in document and finite(document[key]) is None for key in (*_FIRST, *_LAST)
    ):
        where = ", ".join(_rank(rank) for rank in broken[:4])
        yield Result(
            Verdict.CORRUPT, NOT_FINITE, f"the loss is not finite{f' on {where}' if where else ''}"
        )
    checksums = Counter(str(rank.get("checksum")) for rank in ranks)
    if len(checksums) > 1:
        usual = checksums.most_common(1)[0][0]
        odd = ", ".join(_rank(rank) for rank in ranks if str(rank.get("checksum")) != usual)[:150]
        yield Result(
            verdict=Verdict.CORRUPT, code=DIFFER, words=f"other parameters than most on {odd}"
        )
    if first is not None and last is not None:
        fell = f"the loss went from {number(first)} to {number(last)}"
        yield (
            Result(Verdict.PASS, "", fell)
            if last < first
            else Result(Verdict.FAIL, NOT_LEARNED, fell)
        )


def _measurements(document: Document) -> Iterator[Measurement]:
    rate = _first(document, _THROUGHPUT)
    if rate is None or rate <= 0:
        return
    conditions: dict[str, ConditionValue] = {
        key: printable(value)[:100] for key in _TEXTS if isinstance(value := document.get(key), str)
    }
    for name, keys in (
        ("ranks", _RANKS),
        ("batch_per_rank", _BATCH),
        ("image_size", ("image_size",)),
    ):
        count = _first(document, keys)
        if count is not None:
            conditions[name] = int(count)
    if document.get("compile") is True:
        conditions["compile"] = True
    yield Measurement(
        metric="throughput",
        value=rate,
        unit="samples/s",
        subject=Subject("cluster", "training"),
        conditions=conditions,
        samples=(rate,),
    )


def _tool(document: Document) -> str:
    model = document.get("model")
    rate = _first(document, _THROUGHPUT)
    named = f"training of {printable(model)[:60]}" if isinstance(model, str) else "training"
    if rate is None:
        return named
    return f"{named} at {number(rate)} samples/s"


def _wrong_sum(event: Document) -> Result:
    bad = [rank for rank in items(event, "ranks") if finite(rank.get("wrong"))]
    if not bad:
        return Result(Verdict.PASS, "", "every sum is right")
    where = ", ".join(_rank(rank) for rank in bad[:4])
    return Result(
        verdict=Verdict.CORRUPT,
        code=WRONG_SUM,
        words=f"all_reduce by torch: wrong elements on {where}",
    )


def _rank(rank: Document) -> str:
    return printable(f"rank {rank.get('rank')} ({rank.get('host')})")[:100]


def _event(line: str) -> Any:
    start = line.find("{")
    try:
        return json.JSONDecoder().raw_decode(line, max(start, 0))[0]
    except (ValueError, RecursionError):
        return None


def _first(document: Document, keys: Sequence[str]) -> float | None:
    """Return the first finite number under one of the keys."""
    return next((value for key in keys if (value := finite(document.get(key))) is not None), None)
