"""Metrics, dashboard and alerts with the real Prometheus, node exporter and push gateway."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from seatrial.model.verdict import Verdict
from seatrial.report.metrics import publish, publish_coverage
from tests import nights, samples
from tests.site import free_port

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deployments/prometheus/seatrial.rules.yaml"
UNPACKED = Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "seatrial/prometheus/usr/bin"
)
PATH = f"{os.environ['PATH']}:{UNPACKED}"
TOOLS = ("prometheus", "promtool", "prometheus-node-exporter", "prometheus-pushgateway")

pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool, path=PATH) for tool in TOOLS),
    reason="Prometheus is not here: scripts/prometheus-packages",
)


def tool(name: str) -> str:
    return shutil.which(name, path=PATH) or name


@contextmanager
def running(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """A server of ours until the end; what it says is in `folder`."""
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen([tool(name), *arguments], stdout=log, stderr=log, cwd=folder)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(true: Callable[[], Any], timeout_s: float = 60) -> Any:
    """The first thing that is true."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if value := true():
                return value
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError("it did not happen in time")


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[str, Path, str]]:
    """Prometheus' address, the folder that its node exporter reads, and the address of its push
    gateway.
    """
    exporter, gateway, own = (f"127.0.0.1:{free_port()}" for _ in range(3))
    textfiles = tmp_path / "textfiles"
    textfiles.mkdir()
    jobs = [
        {"job_name": "node", "static_configs": [{"targets": [exporter]}]},
        {"job_name": "push", "honor_labels": True, "static_configs": [{"targets": [gateway]}]},
    ]
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    with ExitStack() as stack:
        stack.enter_context(
            running(
                tmp_path,
                "prometheus-node-exporter",
                f"--web.listen-address={exporter}",
                "--collector.disable-defaults",
                "--collector.textfile",
                f"--collector.textfile.directory={textfiles}",
            )
        )
        stack.enter_context(
            running(tmp_path, "prometheus-pushgateway", f"--web.listen-address={gateway}")
        )
        stack.enter_context(
            running(
                tmp_path,
                "prometheus",
                "--config.file=prometheus.yml",
                f"--web.listen-address={own}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            )
        )
        for address in (gateway, own):
            until(partial(is_ready, address))
        yield f"http://{own}", textfiles, f"http://{gateway}"


def is_ready(address: str) -> bool:
    return httpx.get(f"http://{address}/-/ready").is_success


def ask(url: str, query: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{url}/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", answer
    vector: list[dict[str, Any]] = answer["data"]["result"]
    return vector


def test_promtool_reports_nothing(tmp_path: Path) -> None:
    subprocess.run(
        [tool("promtool"), "check", "rules", str(RULES)], check=True, capture_output=True
    )
    file = Path(publish(samples.with_shares(nights.bad(1)), nights.good(0).finished, str(tmp_path)))
    linted = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=file.read_text(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")


def test_every_panel_shows_something_and_the_alerts_fire(prometheus: tuple[str, Path, str]) -> None:
    url, textfiles, gateway = prometheus
    publish(samples.with_shares(nights.bad(1)), nights.good(0).finished, str(textfiles))
    publish(nights.good(1, cluster="h100-west"), nights.good(1).finished, gateway)
    publish_coverage("h100-east", samples.coverage(), datetime.now(UTC), str(textfiles))
    until(lambda: len(ask(url, "seatrial_nodes")) == 2)
    until(lambda: ask(url, "seatrial_coverage_timestamp_seconds"))
    assert [sample["value"][1] for sample in ask(url, "node_textfile_scrape_error")] == ["0"]
    dashboard = json.loads((ROOT / "deployments/grafana/seatrial.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$cluster", ".*").replace("$suite", ".*")
            assert ask(url, query), f"{panel['title']}: {query}"
    last = {
        row["metric"]["cluster"]: row["metric"]["verdict"]
        for row in ask(url, "seatrial_verdict == 1")
    }
    assert last == {"h100-east": "fail", "h100-west": "pass"}
    age = ask(url, "time() - seatrial_last_good_run_timestamp_seconds{cluster='h100-east'}")
    assert float(age[0]["value"][1]) == pytest.approx(
        time.time() - nights.good(0).finished.timestamp(), abs=30
    )
    # Each group of rules is evaluated in its own time
    until(lambda: ("SeatrialNotGood", "h100-east") in firing(url))


@pytest.mark.parametrize(
    ("verdict", "last_good", "fire"),
    [
        (Verdict.PASS, True, set()),
        (Verdict.DEGRADED, False, {"SeatrialNotPassed", "SeatrialNeverGood"}),
        (Verdict.INCONCLUSIVE, False, {"SeatrialNotPassed", "SeatrialNeverGood"}),
        (Verdict.NOT_RUN, False, {"SeatrialNotPassed", "SeatrialNeverGood"}),
        (Verdict.FAIL, False, {"SeatrialNotGood", "SeatrialNeverGood"}),
        (Verdict.CORRUPT, True, {"SeatrialNotGood"}),
        (Verdict.DEGRADED, True, {"SeatrialNotPassed"}),
    ],
)
def test_a_cluster_that_has_not_passed_alerts_from_its_first_night(
    verdict: Verdict, last_good: bool, fire: set[str], tmp_path: Path
) -> None:
    """By promtool's own tests of rules, whose time begins at 0."""
    own = '{cluster="east",suite="nightly"}'
    values = {f"seatrial_run_timestamp_seconds{own}": 0}
    if last_good:
        values[f"seatrial_last_good_run_timestamp_seconds{own}"] = 0
    for each in Verdict:
        values[f'seatrial_verdict{{cluster="east",suite="nightly",verdict="{each.value}"}}'] = int(
            each is verdict
        )
    expr = 'count by (alertname) (ALERTS{alertstate="firing",cluster="east"})'
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(fire)]
    test = {
        "input_series": [
            {"series": series, "values": f"{value}x10"} for series, value in values.items()
        ],
        "promql_expr_test": [{"expr": expr, "eval_time": "5m", "exp_samples": samples}],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def firing(url: str) -> set[tuple[str, str]]:
    """The alerts that fire, and of which cluster."""
    alerts = httpx.get(f"{url}/api/v1/alerts").json()["data"]["alerts"]
    labels = (alert["labels"] for alert in alerts if alert["state"] == "firing")
    return {(of["alertname"], of["cluster"]) for of in labels}
