"""The coverage of a cluster at work as Prometheus metrics, in base units."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from seatrial.qualify.coverage import Coverage
from seatrial.report.metrics import hand_over

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_SUITE = "coverage"  # in the place of a suite, in names of files and groups


def coverage_registry(cluster: str, covered: Coverage, at: datetime) -> "CollectorRegistry":
    """Return all metrics of the coverage, as it was `at`; a node, GPU or pair that never passed has the time 0."""
    from prometheus_client import CollectorRegistry, Gauge

    into = CollectorRegistry()
    last_passes: list[tuple[str, str, tuple[str, ...], Mapping[Any, timedelta | None]]] = [
        ("node", "a node", ("node",), covered.nodes),
        ("gpu", "a GPU", ("gpu",), covered.gpus),
        ("pair", "two leaf switches", ("first", "second"), covered.pairs),
    ]
    for kind, noun, labels, ages in last_passes:
        name, description = f"seatrial_{kind}_last_pass_timestamp_seconds", f"last passed test of {noun}"
        gauge = Gauge(name, description, ("cluster", *labels), registry=into)
        for subject, age in ages.items():
            names = (subject,) if kind != "pair" else subject
            gauge.labels(cluster, *names).set((at - age).timestamp() if age is not None else 0.0)
    values = [
        ("node_max_age_seconds", "age that the last passed test of a node may have", covered.max_age.total_seconds()),
        ("pair_max_age_seconds", "age that one of two switches may have", covered.pair_max_age.total_seconds()),
        ("covered_nodes_ratio", "share of nodes whose last passed test is young enough", covered.share),
        ("checks_gpu_seconds", "GPU seconds that checks took in the last 7 days", covered.gpu_hours_week * 3600),
        ("coverage_timestamp_seconds", "when the coverage was looked at", at.timestamp()),
    ]
    for name, description, value in values:
        Gauge(f"seatrial_{name}", description, ("cluster",), registry=into).labels(cluster).set(value)
    return into


def publish_coverage(cluster: str, covered: Coverage, at: datetime, target: str) -> str:
    """Write or push the metrics to `target`, as those of a run; says where they are. Raises OSError."""
    return hand_over(coverage_registry(cluster, covered, at), cluster, _SUITE, target)
