"""The metrics of a run, and that the dashboard and the alerts ask for nothing else."""

import json
import math
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seatrial.checks.metrics import unit_of
from seatrial.cli.doctor import diagnosed, show
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.metrics import coverage_registry, headlines, publish, target_of_environment
from seatrial.tasks.record import metrics
from tests import nights, sample_sweeps, samples

ROOT = Path(__file__).parents[2]
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def written(result: RunResult, folder: Path, good: RunResult | None = None) -> Samples:
    """Every sample by name and labels."""
    publish(result, good.finished if good else None, str(folder))
    (file,) = folder.glob("*.prom")
    series: Samples = {}
    for family in text_string_to_metric_families(file.read_text()):
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if v))
            series.setdefault(sample.name, {})[labels] = sample.value
    return series


def test_metrics_of_a_run_are_written_with_labels_and_base_units(tmp_path: Path) -> None:
    bad, good = samples.with_shares(nights.bad(1)), nights.good(0)
    series = written(bad, tmp_path, good)
    own = (("cluster", "h100-east"), ("suite", "nightly"))
    assert series["seatrial_verdict"][*own, ("verdict", "fail")] == 1
    assert sum(series["seatrial_verdict"].values()) == 1
    assert len(series["seatrial_verdict"]) == len(Verdict)
    assert series["seatrial_last_good_run_timestamp_seconds"][own] == good.finished.timestamp()
    assert series["seatrial_run_timestamp_seconds"][own] == bad.finished.timestamp()
    assert series["seatrial_suspects"][own] == 2
    at = (own[0], ("dtype", "float32"), ("operation", "all_reduce"), own[1])
    assert series["seatrial_busbw_plateau_bytes_per_second"][at] == pytest.approx(204.9e9, rel=1e-3)
    expected = series["seatrial_busbw_plateau_expected_bytes_per_second"]
    assert expected[("bound", "low"), *at] == pytest.approx(387e9 * 0.94)
    assert (
        series["seatrial_throughput_samples_per_second"][own[0], ("dtype", "float32"), own[1]]
        == 11840
    )
    assert {file.name for file in tmp_path.iterdir()} == {"seatrial-h100-east-nightly.prom"}
    assert os.stat(tmp_path / "seatrial-h100-east-nightly.prom").st_mode & 0o777 == 0o644


def test_training_of_a_decoder_and_a_campaign_have_their_numbers_in_base_units() -> None:
    numbers = {
        "tokens_per_gpu": 5762.0,
        "loss": 2.5,
        "campaign_hours": 72.0,
    }
    measured = [
        Measurement(metric, value, unit_of(metric) or "", sample_sweeps.CLUSTER)
        for metric, value in numbers.items()
    ]
    check = Check("training", Verdict.PASS, Reason(), 1.0, tuple(measured))
    found = headlines(replace(nights.good(1), checks=[check]))
    assert {f"{each.name}_{each.unit}": each.value for each in found} == {
        "tokens_per_gpu_tokens_per_second": 5762.0,
        "loss_nats": 2.5,
        "campaign_hours_seconds": 72 * 3600,
    }


def test_each_path_and_each_group_of_ranks_has_a_sample_of_its_own(tmp_path: Path) -> None:
    measured = [
        Measurement(metric, value, unit, sample_sweeps.CLUSTER, {name: label})
        for metric, unit, name, label, value in (
            ("storage_write", "GB/s", "path", "/scratch", 40.0),
            ("storage_write", "GB/s", "path", "/home", 2.0),
            ("communication_share", "", "group", "fsdp", 0.2),
            ("communication_share", "", "group", "tp", 0.1),
        )
    ]
    check = Check("storage", Verdict.PASS, Reason(), 1.0, tuple(measured))
    series = written(replace(nights.good(1), checks=[check]), tmp_path)
    assert [*series["seatrial_storage_write_bytes_per_second"].values()] == [40e9, 2e9]
    assert [*series["seatrial_communication_share_ratio"].values()] == [0.2, 0.1]


def test_cluster_that_never_passed_has_no_last_good_timestamp(tmp_path: Path) -> None:
    assert "seatrial_last_good_run_timestamp_seconds" not in written(nights.bad(1), tmp_path)


def test_only_numbers_of_the_whole_cluster_are_headlines() -> None:
    cluster = sample_sweeps.CLUSTER
    odd = (
        Measurement("busbw_plateau", math.nan, "GB/s", cluster),
        Measurement("temperature", 40.0, "bananas", cluster),
        Measurement("busbw", 4.0, "GB/s", cluster, {"message_bytes": 1024}),
        Measurement("clock_skew", 0.1, "s", replace(cluster, kind="node", name="node-1")),
        Measurement("Peak rate!", 2.0, "us", cluster),
    )
    check = Check("odd", Verdict.PASS, Reason(), 1.0, odd)
    (only,) = headlines(replace(nights.good(1), checks=[check]))
    assert (only.name, only.unit) == ("peak_rate", "seconds")
    assert only.value == pytest.approx(2e-6)


def test_hostile_names_cannot_break_metric_labels_or_the_file_path(tmp_path: Path) -> None:
    evil = replace(nights.bad(1), cluster='../../x"} 1\nup{a="', suite="/etc/passwd")
    series = written(evil, tmp_path)
    assert len(series["seatrial_nodes"]) == 1
    assert [file.name for file in tmp_path.iterdir()] == [
        "seatrial-.._.._x_1_up_a_-_etc_passwd.prom"
    ]


def test_number_of_series_does_not_grow_with_nodes(tmp_path: Path) -> None:
    nodes = [{"name": f"node-{i}"} for i in range(1000)]
    per_node = tuple(
        Measurement(
            "tcp_egress", 9.0, "MB/s", replace(sample_sweeps.CLUSTER, kind="node", name=f"node-{i}")
        )
        for i in range(1000)
    )
    run = replace(
        nights.bad(1),
        nodes=nodes,
        checks=[Check("connectivity", Verdict.PASS, Reason(), 1.0, per_node)],
    )
    assert sum(len(series) for series in written(run, tmp_path).values()) < 30


@pytest.mark.parametrize(
    "target",
    [
        "relative/folder",
        "http://user:secret@gateway:9091",
        "/no/such/folder",
        "/" + "x" * 300,
        "http://a..b:9091",
    ],
)
def test_invalid_metrics_target_is_bad_input_but_only_a_note_in_a_run(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_METRICS", target)
    with pytest.raises(InputError, match=r"^SEATRIAL_METRICS must be ") as raised:
        target_of_environment()
    assert "secret" not in str(raised.value)
    assert (metrics(nights.bad(1), None) or "").startswith(
        "metrics could not be published: SEATRIAL_METRICS must be "
    )


def test_a_folder_that_goes_away_is_a_note_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        publish(nights.bad(1), None, str(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


def test_doctor_checks_the_metrics_target_only_when_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def row() -> list[str]:
        show(diagnosed(None), as_json=False)
        return [line for line in capsys.readouterr().out.splitlines() if "metrics" in line.lower()]

    monkeypatch.delenv("SEATRIAL_METRICS", raising=False)
    assert row() == []
    monkeypatch.setenv("SEATRIAL_METRICS", str(tmp_path))
    assert row() == ["ok      metrics"]
    monkeypatch.setenv("SEATRIAL_METRICS", f"{tmp_path}/typo")
    (text,) = row()
    assert text.startswith(
        f"missing metrics: SEATRIAL_METRICS must be a folder that exists, is {tmp_path}/typo; make"
    )
    assert show(diagnosed(None), as_json=False) == 1
    assert not (tmp_path / "typo").exists()


def test_a_gateway_that_is_not_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_METRICS", "http://127.0.0.1:9")
    assert "Connection refused" in (metrics(nights.bad(1), None) or "")
    monkeypatch.delenv("SEATRIAL_METRICS")
    assert metrics(nights.bad(1), None) is None


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bseatrial_[a-z_]+", text))


def coverage_written() -> set[str]:
    """The names of the metrics of a pass over a cluster."""
    at = datetime(2026, 5, 4, tzinfo=UTC)
    text = generate_latest(coverage_registry("c", samples.coverage(), at)).decode()
    assert 'seatrial_node_last_pass_timestamp_seconds{cluster="c",node="n1"} 0.0' in text
    assert 'seatrial_checks_gpu_seconds{cluster="c"} 5400.0' in text
    return names_in(text)


def test_dashboard_queries_only_written_metrics(tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "deployments/grafana/seatrial.json").read_text())
    there = (
        set(written(samples.with_shares(nights.bad(1)), tmp_path, nights.good(0)))
        | coverage_written()
    )
    assert dashboard["panels"]
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked = names_in(target["expr"])
            assert asked, panel["title"]
            assert asked <= set(there), panel["title"]
    for variable in dashboard["templating"]["list"][1:]:
        assert names_in(variable["definition"]) <= set(there)


def test_grafanas_own_model_reads_the_dashboard() -> None:
    dashboard = json.loads((ROOT / "deployments/grafana/seatrial.json").read_text())
    read: Any = Dashboard.from_json(dashboard)
    assert (read.uid, read.title) == ("seatrial", "seatrial")
    assert [panel.title for panel in read.panels] == [
        panel["title"] for panel in dashboard["panels"]
    ]
    spots = [panel["gridPos"] for panel in dashboard["panels"]]
    cells = [
        (x, y)
        for s in spots
        for x in range(s["x"], s["x"] + s["w"])
        for y in range(s["y"], s["y"] + s["h"])
    ]
    assert len(cells) == len(set(cells))  # no two panels lie on each other
    assert max(x for x, _ in cells) < 24


def test_alert_rules_query_only_written_metrics(tmp_path: Path) -> None:
    rules = yaml.safe_load((ROOT / "deployments/prometheus/seatrial.rules.yaml").read_text())
    there = set(written(nights.bad(1), tmp_path, nights.good(0))) | coverage_written()
    for rule in rules["groups"][0]["rules"]:
        assert names_in(rule["expr"])
        assert names_in(rule["expr"]) <= set(there)
