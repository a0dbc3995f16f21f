"""The coverage of a cluster at work as Prometheus metrics, in base units."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.qualify.coverage import Coverage
from seatrial.report.metrics import file_name, is_gateway

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_SUITE = "coverage"  # in the place of a suite, in names of files and groups


def coverage_registry(cluster: str, covered: Coverage, at: datetime) -> "CollectorRegistry":
    """All metrics of the coverage, as it was `at`; a node, GPU or pair that never passed has the time 0."""
    from prometheus_client import CollectorRegistry, Gauge

    into = CollectorRegistry()
    nodes = Gauge(
        "seatrial_node_last_pass_timestamp_seconds", "last passed test of a node", ("cluster", "node"), registry=into
    )
    gpus = Gauge(
        "seatrial_gpu_last_pass_timestamp_seconds", "last passed test of a GPU", ("cluster", "gpu"), registry=into
    )
    pairs = Gauge(
        "seatrial_pair_last_pass_timestamp_seconds",
        "last passed test of two leaf switches",
        ("cluster", "first", "second"),
        registry=into,
    )
    for name, passed in _times(covered.nodes, at).items():
        nodes.labels(cluster, name).set(passed)
    for name, passed in _times(covered.gpus, at).items():
        gpus.labels(cluster, name).set(passed)
    for (first, second), passed in _times(covered.pairs, at).items():
        pairs.labels(cluster, first, second).set(passed)
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
    from prometheus_client import push_to_gateway, write_to_textfile

    collected = coverage_registry(cluster, covered, at)
    if is_gateway(target):
        grouping = {"cluster": cluster, "suite": _SUITE}
        push_to_gateway(target, "seatrial", collected, grouping_key=grouping, timeout=10)
        return "pushed"
    path = Path(target) / file_name(cluster, _SUITE)
    write_to_textfile(str(path), collected)
    path.chmod(0o644)  # the node exporter is another user
    return str(path)


def _times(ages: Mapping[Any, timedelta | None], at: datetime) -> dict[Any, float]:
    return {name: (at - age).timestamp() if age is not None else 0.0 for name, age in ages.items()}
