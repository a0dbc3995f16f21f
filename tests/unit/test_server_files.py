"""The files for a server and its workers, on Docker and on Kubernetes. Nothing is started here."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.alerts.config import Notify
from seatrial.alerts.settings import AlertSettings
from seatrial.metrics import target_of_environment

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"


def test_the_compose_file_is_one() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    compose = DEPLOYMENTS / "server" / "compose.yaml"
    subprocess.run([*command, str(compose)], check=True, capture_output=True)
    wanted = set(re.findall(r"\$\{(\w+):\?", compose.read_text()))
    assert wanted <= set(re.findall(r"^(\w+)=", (DEPLOYMENTS / "server" / "example.env").read_text(), re.MULTILINE))


def test_the_worker_knows_whom_to_tell() -> None:
    """Every variable of docs/alerts.md and docs/metrics.md for sites, empty where .env leaves it open."""
    told = (ROOT / "docs" / "alerts.md").read_text() + (ROOT / "docs" / "metrics.md").read_text()
    wanted = set(re.findall(r"SEATRIAL_(?:SLACK|ALERT|METRICS)\w*", told)) - {"SEATRIAL_SLACK_API_URL"}  # for tests
    worker = yaml.safe_load((DEPLOYMENTS / "server" / "compose.yaml").read_text())["services"]["worker"]["environment"]
    assert worker["PREFECT_UI_URL"] == "${PREFECT_URL:-http://127.0.0.1:4200}"  # in links, as people reach it
    assert wanted
    assert {name: worker.get(name) for name in wanted} == {name: f"${{{name}:-}}" for name in wanted}
    assert wanted <= set(re.findall(r"^(\w+)=$", (DEPLOYMENTS / "server" / "example.env").read_text(), re.MULTILINE))


def test_what_env_leaves_open_is_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK_TOKEN", "SLACK_CHANNEL", "SLACK_WEBHOOK", "ALERT_WEBHOOK", "ALERT_URLS", "METRICS"):
        monkeypatch.setenv(f"SEATRIAL_{name}", "")
    assert AlertSettings.from_env(Notify()) == AlertSettings()
    assert target_of_environment() is None


def _manifests() -> Iterator[dict[str, Any]]:
    for file in ("server", "worker"):
        text = (DEPLOYMENTS / "server" / "kubernetes" / f"{file}.yaml").read_text()
        yield from yaml.safe_load_all(text)


def test_the_manifests_are_what_kubernetes_takes() -> None:
    import kubernetes_validate

    for manifest in _manifests():
        kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_every_container_runs_without_rights() -> None:
    pods = [m["spec"]["template"]["spec"] for m in _manifests() if "template" in m.get("spec", {})]
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert [pod.get("automountServiceAccountToken", True) for pod in pods] == [False, False, True]


def test_the_worker_may_do_what_prefects_worker_does_and_no_more() -> None:
    """What it calls is read off its own source: each call of the API is a verb on a resource."""
    from prefect_kubernetes import observer, worker

    source = Path(worker.__file__).read_text() + Path(observer.__file__).read_text()
    calls = set(re.findall(r"\.(create|read|list|patch|replace|delete)_namespaced_(job|pod_log|pod)\(", source))
    verbs = {"read": "get", "replace": "update"}
    plural = {"job": "jobs", "pod": "pods", "pod_log": "pods/log"}
    called = {(plural[kind], verbs.get(verb, verb)) for verb, kind in calls}
    watched = {(kind, verb) for kind in ("jobs", "pods") for verb in ("list", "watch")}  # kopf.on.event
    (role,) = (m for m in _manifests() if m["kind"] == "Role")
    granted = {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
    assert called | watched <= granted
    assert granted - called - watched <= {("jobs", "get"), ("pods", "get")}


def test_the_image_is_named_wherever_it_is_run() -> None:
    """People replace it in the manifests; the Jobs' template is in the image by then, and gets it from there."""
    containers = [
        c for m in _manifests() if "template" in m.get("spec", {}) for c in m["spec"]["template"]["spec"]["containers"]
    ]
    ours = [each for each in containers if each["name"] != "postgres"]
    assert {each["image"] for each in ours} == {"REGISTRY/seatrial"}
    (worker,) = (each for each in ours if each["name"] == "worker")
    assert {"name": "SEATRIAL_IMAGE", "value": "REGISTRY/seatrial"} in worker["env"]
    template = json.loads((DEPLOYMENTS / "server" / "kubernetes" / "base-job-template.json").read_text())
    assert template["variables"]["properties"]["image"]["default"] == "REGISTRY/seatrial"
    assert "s|REGISTRY/seatrial|$SEATRIAL_IMAGE|" in (DEPLOYMENTS / "server" / "start-worker").read_text()


def test_the_base_job_template_makes_a_job() -> None:
    import kubernetes_validate
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

    template = json.loads((DEPLOYMENTS / "server" / "kubernetes" / "base-job-template.json").read_text())
    defaults = {
        key: field["default"] for key, field in template["variables"]["properties"].items() if "default" in field
    }
    configuration = _filled(template["job_configuration"], defaults)
    job = KubernetesWorkerJobConfiguration.model_validate(configuration).job_manifest
    job["metadata"] = {"name": "flow-run", "namespace": job["metadata"]["namespace"]}
    pod = job["spec"]["template"]["spec"]
    del pod["completions"], pod["parallelism"]  # Prefect insists on them, Kubernetes leaves them out
    (container,) = pod["containers"]
    container["args"] = container["args"].split()
    assert container["args"] == ["python", "-m", "flows.execute"]
    container["env"] = [{"name": key, "value": value} for key, value in container["env"].items()]
    kubernetes_validate.validate(job, "1.33", strict=True)
    assert pod["serviceAccountName"] == "seatrial"
    assert job["spec"]["activeDeadlineSeconds"] == 21_600


def _filled(node: Any, values: dict[str, Any]) -> Any:
    """The template with its defaults; what has none is left out."""
    if isinstance(node, dict):
        filled = {key: _filled(value, values) for key, value in node.items()}
        return {key: value for key, value in filled.items() if value is not None}
    if isinstance(node, list):
        return [_filled(item, values) for item in node]
    match = re.fullmatch(r"\{\{ (\w+) \}\}", node) if isinstance(node, str) else None
    return values.get(match[1]) if match else node
