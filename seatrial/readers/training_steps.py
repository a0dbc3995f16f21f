"""Read the steps that a training program logs: Megatron-LM, torchtitan, NeMo, Composer, Hugging
Face, JSON. Pure.

One line is one step. All programs write `name: value` or `name=value`, so the fields are found by
their names.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from seatrial.text.lazy_pattern import lazy

_NUMBER = r"(-?(?:nan|inf(?:inity)?|\d[\d,]{0,20}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?))\b"
_IS = r"['\"]?\s{0,4}[:=]\s{0,20}['\"]?"  # JSON has NaN as a text

LINE = lazy(
    r"\A(?:.{0,300}?(?:\biteration\s{1,20}\d{1,12}/\s{0,20}\d{1,12}\b"  # Megatron-LM, NeMo
    r"|\bstep:\s{0,8}\d{1,12}\s{1,8}.{0,40}?\bloss:\s"  # torchtitan
    r"|\btrain_step_timing in s\b"  # NeMo's progress bar
    # Progress bars: Composer, Lightning
    r"|\b(?:reduced_train_)?loss(?:/\w{1,40}){0,3}=-?(?:\d|nan|inf)"
    r"|\{['\"](?:train_)?loss['\"]: )"  # Hugging Face
    r"|\s{0,40}\{.{0,300}?\"(?:train_|lm_)?loss\": ?\"?-?(?:\d|nan|inf|null))",  # lines of JSON
    re.IGNORECASE,
)
_STEP = lazy(
    r"\biteration\s{1,20}(\d{1,12})\s{0,4}/|\b(?:global_)?step(?:/max_steps)?['\"]?\s{0,4}[:=]\s{0,8}['\"]?(\d{1,12})",
    re.IGNORECASE,
)
_OF_BAR = lazy(r"\| {0,2}(\d{1,12})/\d")
_LOSS = lazy(
    rf"\b(?:lm[ _]|reduced_train_|train_)?loss(?:/\w{{1,40}}){{0,3}}{_IS}{_NUMBER}", re.IGNORECASE
)
_GRAD_NORM = lazy(rf"\bgrad[ _]norm{_IS}{_NUMBER}", re.IGNORECASE)
_MILLISECONDS = lazy(rf"\belapsed time per iteration \(ms\){_IS}{_NUMBER}")
_SECONDS = lazy(
    rf"\btrain_step_timing in s{_IS}{_NUMBER}|\b(?:step|iteration)_time(?:_s)?{_IS}{_NUMBER}"
)
_TFLOPS = lazy(
    (
        r"\bthroughput per GPU "
        rf"\(TFLOP/s/GPU\){_IS}{_NUMBER}|\btflops(?:_per_(?:sec_per_)?gpu)?{_IS}{_NUMBER}"
    ),
    re.IGNORECASE,
)
_TOKENS = lazy(
    rf"\btps{_IS}{_NUMBER}|\btokens per (?:GPU|second per device)(?: "
    rf"\(tokens/s/GPU\))?{_IS}{_NUMBER}"
    rf"|\btokens_per_(?:sec(?:ond)?)(?:_per_gpu)?{_IS}{_NUMBER}",
    re.IGNORECASE,
)
_SAMPLES = lazy(rf"\bsamples(?: per second|/sec|_per_second){_IS}{_NUMBER}", re.IGNORECASE)
# Where Megatron-LM prints no loss: those of steps that it skipped
_NAN = lazy(rf"\bnumber of nan iterations{_IS}{_NUMBER}")
_SKIPPED = lazy(rf"\bnumber of skipped iterations{_IS}{_NUMBER}")


@dataclass(frozen=True, slots=True)
class Step:
    """What one line says of a step; None for what it does not say. NaN and infinity are kept.

    `number` is the program's; in a log without numbers the step's place, in words.
    """

    number: int | str | None
    loss: float | None = None
    grad_norm: float | None = None
    time_ms: float | None = None
    tflops_per_gpu: float | None = None
    tokens_s_per_gpu: float | None = None
    samples_s: float | None = None
    skipped: bool = False

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient are numbers.

        A skipped step has no gradient: its loss scale was too large.
        """
        if self.loss is not None and not math.isfinite(self.loss):
            return False
        if self.skipped or self.grad_norm is None:
            return True
        return math.isfinite(self.grad_norm)


def read_step(line: str) -> Step | None:
    """Return the step of a line; None for a line that is of no step."""
    if not LINE.match(line):
        return None
    number = _STEP.search(line) or _OF_BAR.search(line)
    milliseconds = _value(_MILLISECONDS, line)
    if milliseconds is None and (seconds := _value(_SECONDS, line)) is not None:
        milliseconds = seconds * 1000
    return Step(
        number=int(next(filter(None, number.groups()))) if number else None,
        loss=math.nan if _value(_NAN, line) else _value(_LOSS, line),
        grad_norm=_value(_GRAD_NORM, line),
        time_ms=milliseconds,
        tflops_per_gpu=_value(_TFLOPS, line),
        tokens_s_per_gpu=_value(_TOKENS, line),
        samples_s=_value(_SAMPLES, line),
        skipped=bool(_value(_SKIPPED, line)),
    )


def read_steps(lines: Iterable[str]) -> list[Step]:
    """Return the steps in lines of any of the programs, in their order.

    A step whose line has no number is "12 of the log", by its place among the steps.
    """
    steps = filter(None, map(read_step, lines))
    return [
        replace(step, number=f"{place} of the log") if step.number is None else step
        for place, step in enumerate(steps, 1)
    ]


def _value(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    if match is None:
        return None
    text = next(filter(None, match.groups()))
    return float(text.replace(",", ""))
