"""Read the result of a training: results.json, or the JSON lines that `seatrial probe training`
prints. Pure.

The keys of results.json are in docs/judging-logs.md. A throughput is compared with a published one
by the judge.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.readers.documents import Document, finite, items, json_in
from seatrial.readers.report import Lines, Report, Result, Results, corrupt, failed, passed
from seatrial.text.lazy_pattern import lazy
from seatrial.text.printable import printable
from seatrial.text.words import number

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
# Conditions that are numbers, and the keys that they have
_COUNTS = (
    ("ranks", ("world_size", "num_gpus", "gpus", "ranks")),
    ("batch_per_rank", ("batch_size_per_gpu", "batch_per_rank", "batch_per_gpu")),
    ("image_size", ("image_size",)),
)
_FIRST = ("loss_start", "first_loss", "initial_loss")
_LAST = ("loss_end", "last_loss", "final_loss")
_TEXTS = ("model", "precision", "data", "device")


def read_document(document: Document) -> Report | None:
    """Return the report of results.json; None for another document."""
    if not any(key in document for key in (*_THROUGHPUT, *_LAST)):
        return None
    return _report(document, is_whole=True)


def read_events(lines: Lines) -> Report | None:
    """Return the report of the JSON lines of a training or of its all_reduce check; None without a
    whole line.
    """
    events = [event for event in map(json_in, lines) if isinstance(event, dict)]
    if not events:
        return None
    summary: Document = {}
    steps = []
    results = []
    for event in events:
        match event.get("event"):
            case "summary":
                summary = event
            case "step":
                steps.append(event)
            case "all_reduce":
                results.append(_wrong_sum(event))
    lost = next((step for step in steps if _is_broken(step, "loss")), None)
    if lost:
        words = f"the loss of step {lost.get('step')} is not finite"
        results.append(corrupt(NOT_FINITE, words))
    if steps and not summary and not lost:
        return Report(f"training that ends at step {steps[-1].get('step')}")
    whole = _report(summary, is_whole=bool(summary))
    return replace(whole, results=(*results, *whole.results))


def _is_broken(document: Document, key: str) -> bool:
    """Return whether the document has a value for `key` that is not a finite number."""
    return key in document and finite(document[key]) is None


def _report(document: Document, is_whole: bool) -> Report:
    """Return the rate of a training, and, if it `is_whole`, the results of its end."""
    results = tuple(_results(document)) if is_whole else ()
    words = "training"
    model = document.get("model")
    if isinstance(model, str):
        words += f" of {printable(model)[:60]}"
    rate = _first(document, _THROUGHPUT)
    if rate is not None:
        words += f" at {number(rate)} samples/s"
    return Report(words, results, tuple(_measurements(document)))


def _results(document: Document) -> Results:
    """Yield a loss that is not finite or did not fall, and ranks with other parameters.

    A rank without a checksum is left out; without a majority no rank is named.
    """
    ranks = items(document, "ranks")
    broken = [rank for rank in ranks if rank.get("finite") is False]
    has_broken_loss = any(_is_broken(document, key) for key in (*_FIRST, *_LAST))
    if broken or has_broken_loss:
        words = "the loss is not finite"
        if broken:
            words += f" on {_named(broken)}"
        yield corrupt(NOT_FINITE, words)
    summed = [rank for rank in ranks if rank.get("checksum") is not None]
    checksums = Counter(str(rank["checksum"]) for rank in summed)
    if len(checksums) > 1:
        usual, most = checksums.most_common(1)[0]
        words = "ranks have different parameters: no majority agrees"
        if 2 * most > len(summed):
            odd = [rank for rank in summed if str(rank["checksum"]) != usual]
            words = f"other parameters than most on {_named(odd)}"
        yield corrupt(DIFFER, words)
    first = _first(document, _FIRST)
    last = _first(document, _LAST)
    if first is None or last is None:
        return
    went = f"the loss went from {number(first)} to {number(last)}"
    if last < first:
        yield passed(went)
    else:
        yield failed(NOT_LEARNED, went)


def _measurements(document: Document) -> Iterator[Measurement]:
    """Yield the throughput in samples/s with what it depends on; nothing without a rate."""
    rate = _first(document, _THROUGHPUT)
    if rate is None or rate <= 0:
        return
    conditions: dict[str, ConditionValue] = {}
    for key in _TEXTS:
        text = document.get(key)
        if isinstance(text, str):
            conditions[key] = printable(text)[:100]
    for name, keys in _COUNTS:
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


def _wrong_sum(event: Document) -> Result:
    """Return which ranks saw wrong sums; a pass if none did."""
    bad = [rank for rank in items(event, "ranks") if finite(rank.get("wrong"))]
    if not bad:
        return passed("every sum is right")
    return corrupt(WRONG_SUM, f"all_reduce by torch: wrong elements on {_named(bad)}")


def _named(ranks: Sequence[Document]) -> str:
    """Name the first few ranks."""
    return ", ".join(map(_rank, ranks[:4]))


def _rank(rank: Document) -> str:
    """Name a rank and its host, as they are printed."""
    return printable(f"rank {rank.get('rank')} ({rank.get('host')})")[:100]


def _first(document: Document, keys: Sequence[str]) -> float | None:
    """Return the first finite number under one of the keys."""
    for key in keys:
        value = finite(document.get(key))
        if value is not None:
            return value
    return None
