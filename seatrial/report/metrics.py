"""A run, and the coverage of a cluster at work, as Prometheus metrics in base units:
https://prometheus.io/docs/practices/naming.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement
from seatrial.model.result import Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.qualify.coverage import Coverage
from seatrial.text.addresses import split

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

VARIABLE = "SEATRIAL_METRICS"
_LABELS = ("cluster", "suite")
_CONDITIONS = ("operation", "arm", "dtype", "path", "group")
_COVERAGE = "coverage"  # in the place of a suite, in names of files and groups

# Prometheus's base unit of each unit: the suffix of the metric's name, and the factor to it.
_UNITS = {
    "GB/s": ("bytes_per_second", 1e9),
    "MB/s": ("bytes_per_second", 1e6),
    "TFLOP/s": ("flops", 1e12),
    "samples/s": ("samples_per_second", 1.0),
    "tokens/s": ("tokens_per_second", 1.0),
    "nats": ("nats", 1.0),
    "h": ("seconds", 3600.0),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "us": ("seconds", 1e-6),
    "": ("ratio", 1.0),
}


@dataclass(frozen=True, slots=True)
class HeadlineMetric:
    """A number of the whole cluster, in base units; `low` and `high` are what is expected, None
    where nothing is.

    `conditions` are those of `_CONDITIONS`, empty where the number does not have one.
    """

    name: str
    unit: str
    conditions: Mapping[str, str]
    value: float
    low: float | None = None
    high: float | None = None


def headlines(result: RunResult) -> list[HeadlineMetric]:
    """Return the numbers of the whole cluster that stand for a check; no single message size, and
    only finite ones.
    """
    metrics: dict[tuple[str, ...], HeadlineMetric] = {}
    for check in result.checks:
        judged = {j.measurement.series(): j for j in check.judgements}
        measured = {
            m.series(): m for m in (*(j.measurement for j in judged.values()), *check.measurements)
        }
        for series, m in measured.items():
            if (
                m.subject.kind == "cluster"
                and "message_bytes" not in m.conditions
                and m.finite
                and m.unit in _UNITS
            ):
                one = _headline(m, judged.get(series))
                metrics[one.name, *one.conditions.values()] = one
    return list(metrics.values())


def registry(result: RunResult, last_good: datetime | None) -> "CollectorRegistry":
    """Return all metrics of the run; `last_good` is the end of the last run that passed, None if
    none did.
    """
    from prometheus_client import CollectorRegistry, Gauge

    into = CollectorRegistry()
    own = {"cluster": result.cluster, "suite": result.suite}
    verdict = Gauge(
        "seatrial_verdict",
        "1 for the verdict of the last run",
        (*_LABELS, "verdict"),
        registry=into,
    )
    for each in Verdict:
        verdict.labels(**own, verdict=each.value).set(each is result.verdict)
    values = [
        ("run_timestamp_seconds", "when the last run ended", result.finished.timestamp()),
        ("run_duration_seconds", "how long it took", result.seconds),
        ("numbers", "how many numbers were to be judged", result.coverage.numbers),
        (
            "judged_numbers",
            "how many of them were compared with a baseline",
            result.coverage.judged,
        ),
        ("nodes", "how many nodes it was launched on", len(result.nodes)),
        ("suspects", "how many nodes, GPUs and links it blames", len(result.suspects)),
    ]
    if last_good:
        name = "last_good_run_timestamp_seconds"
        values.append((name, "when the last run that passed ended", last_good.timestamp()))
    for name, description, value in values:
        Gauge(f"seatrial_{name}", description, _LABELS, registry=into).labels(**own).set(value)
    gauges: dict[str, Gauge] = {}
    for headline in headlines(result):
        for name, description, more, value in _samples(headline):
            if name not in gauges:
                gauges[name] = Gauge(
                    name, description, (*_LABELS, *_CONDITIONS, *more), registry=into
                )
            gauges[name].labels(**own, **headline.conditions, **more).set(value)
    return into


def coverage_registry(cluster: str, covered: Coverage, at: datetime) -> "CollectorRegistry":
    """Return all metrics of the coverage, as it was `at`; a node, GPU or pair that never passed has
    the time 0.
    """
    from prometheus_client import CollectorRegistry, Gauge

    into = CollectorRegistry()
    last_passes: list[tuple[str, str, tuple[str, ...], Mapping[Any, timedelta | None]]] = [
        ("node", "a node", ("node",), covered.nodes),
        ("gpu", "a GPU", ("gpu",), covered.gpus),
        ("pair", "two leaf switches", ("first", "second"), covered.pairs),
    ]
    for kind, noun, labels, ages in last_passes:
        gauge = Gauge(
            f"seatrial_{kind}_last_pass_timestamp_seconds",
            f"last passed test of {noun}",
            ("cluster", *labels),
            registry=into,
        )
        for subject, age in ages.items():
            names = (subject,) if kind != "pair" else subject
            gauge.labels(cluster, *names).set((at - age).timestamp() if age is not None else 0.0)
    values = [
        (
            "node_max_age_seconds",
            "age that the last passed test of a node may have",
            covered.max_age.total_seconds(),
        ),
        (
            "pair_max_age_seconds",
            "age that one of two switches may have",
            covered.pair_max_age.total_seconds(),
        ),
        (
            "covered_nodes_ratio",
            "share of nodes whose last passed test is young enough",
            covered.share,
        ),
        (
            "checks_gpu_seconds",
            "GPU seconds that checks took in the last 7 days",
            covered.gpu_hours_week * 3600,
        ),
        ("coverage_timestamp_seconds", "when the coverage was looked at", at.timestamp()),
    ]
    for name, description, value in values:
        Gauge(f"seatrial_{name}", description, ("cluster",), registry=into).labels(cluster).set(
            value
        )
    return into


def publish(result: RunResult, last_good: datetime | None, target: str) -> str:
    """Write or push the run's metrics to `target`, a folder or the address of a push gateway; says
    where they are.

    A folder, which must be there, gets one file per cluster and suite, whole or not at all. Raises
    OSError where it cannot be done.
    """
    return _hand_over(registry(result, last_good), result.cluster, result.suite, target)


def publish_coverage(cluster: str, covered: Coverage, at: datetime, target: str) -> str:
    """Write or push the metrics to `target`, as those of a run; says where they are.

    Raises OSError.
    """
    return _hand_over(coverage_registry(cluster, covered, at), cluster, _COVERAGE, target)


def _hand_over(collected: "CollectorRegistry", cluster: str, suite: str, target: str) -> str:
    """Write or push metrics as those of the cluster and suite, as `publish` does."""
    from prometheus_client import push_to_gateway, write_to_textfile

    if is_gateway(target):
        grouping = {"cluster": cluster, "suite": suite}
        push_to_gateway(target, "seatrial", collected, grouping_key=grouping, timeout=10)
        return "pushed"
    path = Path(target) / f"seatrial-{_slug(cluster)}-{_slug(suite)}.prom"
    write_to_textfile(str(path), collected)
    path.chmod(0o644)  # the node exporter is another user
    return str(path)


def target_of_environment() -> str | None:
    """Return SEATRIAL_METRICS: an existing folder, or an address.

    Raises InputError for anything else.
    """
    target = os.environ.get(VARIABLE, "").strip()
    if not target:
        return None
    if is_gateway(target):
        parts = split(target)
        if parts is None or parts.username:
            raise InputError(
                f"{VARIABLE} must be http(s)://host:port of a push gateway, without a "
                "login, or a folder"
            )
    elif not target.startswith("/"):
        raise InputError(
            f"{VARIABLE} must be a full path of a folder, or http(s)://host:port of a push gateway"
        )
    elif not os.path.isdir(target):  # a mistyped folder would never be collected
        raise InputError(
            f"{VARIABLE} must be a folder that exists, is {target}; make it, or correct the path"
        )
    return target


def is_gateway(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def _samples(headline: HeadlineMetric) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """Yield name, help, further labels and value of every sample of a headline."""
    title = headline.name.replace("_", " ")
    yield (
        f"seatrial_{headline.name}_{headline.unit}",
        f"{title} of the whole cluster",
        {},
        headline.value,
    )
    for bound, value in (("low", headline.low), ("high", headline.high)):
        if value is not None:
            name = f"seatrial_{headline.name}_expected_{headline.unit}"
            yield name, f"what {title} is expected to be", {"bound": bound}, value


def _headline(m: Measurement, judgement: Judgement | None) -> HeadlineMetric:
    unit, factor = _UNITS[m.unit]
    bounds = (judgement.expected.low, judgement.expected.high) if judgement else (None, None)
    low, high = (b * factor if b is not None and math.isfinite(b) else None for b in bounds)
    conditions = {name: str(m.conditions.get(name, "")) for name in _CONDITIONS}
    name = re.sub(r"[^a-z0-9]+", "_", m.metric.lower()).strip("_") or "number"
    return HeadlineMetric(name, unit, conditions, m.value * factor, low, high)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:80]
