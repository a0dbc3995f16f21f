"""The files for a server and its workers, on Docker and on Kubernetes. Nothing is started here."""

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from seatrial.alerts.settings import AlertSettings
from seatrial.config.notify import Notify
from seatrial.flows.serving.server import _SERVE, ORIGINS
from seatrial.flows.serving.webserver import guarded, own_names, own_pages_alone
from seatrial.report.metrics import target_of_environment

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"


def _compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOYMENTS / "server" / "compose.yaml").read_text())
    return document


def test_the_compose_file_is_valid() -> None:
    jsonschema.validate(_compose(), get_builtin_schema("vendor.compose-spec"))
    required = set(
        re.findall(r"\$\{(\w+):\?", (DEPLOYMENTS / "server" / "compose.yaml").read_text())
    )
    assert required <= set(
        re.findall(r"^(\w+)=", (DEPLOYMENTS / "server" / "example.env").read_text(), re.MULTILINE)
    )


def test_dockerignore_admits_all_files_of_the_wheel() -> None:
    ignore_file = DEPLOYMENTS / "server" / "Dockerfile.dockerignore"
    let_in = {line.removeprefix("!") for line in ignore_file.read_text().splitlines()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    taken = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"]]
    assert [path for path in taken if path.partition("/")[0] not in let_in] == []


def test_no_server_runs_without_a_login_or_for_pages_of_other_origins() -> None:
    """The login has no default: without one nothing is started."""
    services = _compose()["services"]
    asked = services["server"]["environment"]["PREFECT_SERVER_API_AUTH_STRING"]
    assert asked.startswith("${PREFECT_AUTH:?")
    assert services["worker"]["environment"]["PREFECT_API_AUTH_STRING"] == asked
    assert services["server"]["environment"][ORIGINS] == "${PREFECT_URL:-http://127.0.0.1:4200}"
    (server,) = (
        m["spec"]["template"]["spec"]["containers"][0]
        for m in _manifests()
        if m["kind"] == "Deployment" and m["metadata"]["name"] == "prefect"
    )
    variables = {variable.pop("name"): variable for variable in server["env"]}
    secret = {"secretKeyRef": {"name": "seatrial-prefect", "key": "auth"}}
    assert variables["PREFECT_SERVER_API_AUTH_STRING"] == {"valueFrom": secret}
    assert variables["PREFECT_SERVER_UI_API_URL"]["value"] == f"{variables[ORIGINS]['value']}/api"


def test_compose_passes_all_alert_and_metrics_variables_to_the_worker() -> None:
    """Every site variable of docs/alerts.md and docs/metrics.md, empty if .env leaves it unset."""
    pages = (ROOT / "docs" / "alerts.md").read_text() + (ROOT / "docs" / "metrics.md").read_text()
    # For tests
    variables = set(re.findall(r"SEATRIAL_(?:SLACK|ALERT|METRICS)\w*", pages)) - {
        "SEATRIAL_SLACK_API_URL"
    }
    worker = _compose()["services"]["worker"]["environment"]
    # In links, as people reach it
    assert worker["PREFECT_UI_URL"] == "${PREFECT_URL:-http://127.0.0.1:4200}"
    assert variables
    assert {name: worker.get(name) for name in variables} == {
        name: f"${{{name}:-}}" for name in variables
    }
    assert variables <= set(
        re.findall(r"^(\w+)=$", (DEPLOYMENTS / "server" / "example.env").read_text(), re.MULTILINE)
    )


def test_empty_alert_and_metrics_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SLACK_TOKEN",
        "SLACK_CHANNEL",
        "SLACK_WEBHOOK",
        "ALERT_WEBHOOK",
        "ALERT_URLS",
        "METRICS",
    ):
        monkeypatch.setenv(f"SEATRIAL_{name}", "")
    assert AlertSettings.from_env(Notify()) == AlertSettings()
    assert target_of_environment() is None


def _manifests() -> Iterator[dict[str, Any]]:
    for file in ("server", "worker"):
        text = (DEPLOYMENTS / "server" / "kubernetes" / f"{file}.yaml").read_text()
        yield from yaml.safe_load_all(text)


def _base_job_template() -> dict[str, Any]:
    text = (DEPLOYMENTS / "server" / "kubernetes" / "base-job-template.json").read_text()
    template: dict[str, Any] = json.loads(text)
    return template


def test_server_manifests_are_valid_for_kubernetes() -> None:
    import kubernetes_validate

    manifests = list(_manifests())
    assert len(manifests) > 5
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.33", strict=True)


def _rights(file: str) -> set[tuple[str, str]]:
    """What a role of the whole cluster may do, as (resource, verb)."""
    documents = yaml.safe_load_all((DEPLOYMENTS / "kubernetes" / file).read_text())
    rules = (rule for each in documents if each["kind"] == "ClusterRole" for rule in each["rules"])
    return {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_qualify_role_adds_pods_and_node_status_to_the_isolate_role() -> None:
    isolate = {("nodes", "list"), ("nodes", "patch")}
    assert _rights("isolate.yaml") == isolate
    assert _rights("qualify.yaml") == isolate | {("nodes/status", "patch"), ("pods", "list")}


def _pods() -> Iterator[dict[str, Any]]:
    """Specs of everything that runs on Kubernetes: server, database, worker, and the Job of a
    run.
    """
    yield from (
        m["spec"]["template"]["spec"] for m in _manifests() if "template" in m.get("spec", {})
    )
    yield _base_job_template()["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]


def test_every_container_of_the_manifests_runs_without_privileges() -> None:
    pods = list(_pods())
    assert len(pods) == 4
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
    # only the worker and the run talk to the API server
    assert [pod.get("automountServiceAccountToken", True) for pod in pods] == [
        False,
        False,
        True,
        True,
    ]


def test_every_container_of_compose_runs_without_rights() -> None:
    services = _compose()["services"]
    assert set(services) == {"postgres", "server", "worker"}
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert {name for name, service in services.items() if "cap_add" in service} == {"postgres"}


def _namespaces() -> dict[str, dict[str, str]]:
    """Of what ships: names with their labels."""
    documents = yaml.safe_load_all((DEPLOYMENTS / "kubernetes" / "namespaces.yaml").read_text())
    return {each["metadata"]["name"]: each["metadata"]["labels"] for each in documents}


def test_server_and_runs_have_namespaces_of_their_own() -> None:
    """What a run may list is not where the Secrets of the server and of the database are."""
    assert _namespaces()["seatrial"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert set(_namespaces()) == {"seatrial", "seatrial-runs"}
    rights = ("Role", "RoleBinding")
    assert {m["metadata"]["namespace"] for m in _manifests() if m["kind"] not in rights} == {
        "seatrial"
    }
    assert {m["metadata"]["namespace"] for m in _manifests() if m["kind"] in rights} == {
        "seatrial-runs"
    }
    assert _base_job_template()["job_configuration"]["namespace"] == "seatrial-runs"
    role = yaml.safe_load_all((DEPLOYMENTS / "kubernetes" / "role.yaml").read_text())
    subjects = [subject for each in role for subject in each.get("subjects", ())]
    assert {subject.get("namespace", "seatrial-runs") for subject in subjects} == {"seatrial-runs"}


def test_a_run_gets_nothing_from_the_secret_of_the_server() -> None:
    (worker,) = (
        m
        for m in _manifests()
        if m["kind"] == "Deployment" and m["metadata"]["name"] == "seatrial-worker"
    )
    env = {
        each["name"]: each.get("value")
        for each in worker["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert (
        env["PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET_NAME"] == "seatrial-api"
    )
    assert env["PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES"] == "seatrial-runs"
    assert "seatrial-prefect" not in json.dumps(_base_job_template())


def test_worker_role_grants_exactly_what_the_prefect_worker_calls() -> None:
    """Calls are read from the source of the worker: each API call is a verb on a resource."""
    package = find_spec("prefect_kubernetes")  # which takes seconds to import
    assert package
    assert package.origin
    source = "".join(
        Path(package.origin).with_name(f"{name}.py").read_text() for name in ("worker", "observer")
    )
    calls = set(
        re.findall(
            r"\.(create|read|list|patch|replace|delete)_namespaced_(job|pod_log|pod)\(", source
        )
    )
    verbs = {"read": "get", "replace": "update"}
    plural = {"job": "jobs", "pod": "pods", "pod_log": "pods/log"}
    called = {(plural[kind], verbs.get(verb, verb)) for verb, kind in calls}
    # Kopf.on.event
    watched = {(kind, verb) for kind in ("jobs", "pods") for verb in ("list", "watch")}
    (role,) = (m for m in _manifests() if m["kind"] == "Role")
    granted = {
        (kind, verb)
        for rule in role["rules"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }
    assert called | watched <= granted
    assert granted - called - watched <= {("jobs", "get"), ("pods", "get")}


def test_every_manifest_container_and_job_uses_the_same_image() -> None:
    """People replace the image in the manifests; start-worker puts it into the job template."""
    containers = [
        c
        for m in _manifests()
        if "template" in m.get("spec", {})
        for c in m["spec"]["template"]["spec"]["containers"]
    ]
    ours = [each for each in containers if each["name"] != "postgres"]
    assert {each["image"] for each in ours} == {"REGISTRY/seatrial"}
    (worker,) = (each for each in ours if each["name"] == "worker")
    assert {"name": "SEATRIAL_IMAGE", "value": "REGISTRY/seatrial"} in worker["env"]
    template = _base_job_template()
    (container,) = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == "REGISTRY/seatrial"
    assert (
        "s|REGISTRY/seatrial|$SEATRIAL_IMAGE|"
        in (DEPLOYMENTS / "server" / "start-worker").read_text()
    )


def test_a_deployment_chooses_no_more_than_the_resources_of_its_job() -> None:
    """The template fixes command, image, namespace and service account."""
    template = _base_job_template()
    free = {
        "cpu_request",
        "cpu_limit",
        "memory_request",
        "memory_limit",
        "finished_job_ttl",
        "active_deadline_seconds",
    }
    assert set(template["variables"]["properties"]) == free
    assert set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"]))) == free


def test_server_knows_the_host_name_that_workers_use() -> None:
    containers = {
        c["name"]: {each["name"]: each.get("value") for each in c.get("env", [])}
        for m in _manifests()
        if m["kind"] == "Deployment"
        for c in m["spec"]["template"]["spec"]["containers"]
    }
    called = urlsplit(containers["worker"]["PREFECT_API_URL"]).hostname
    assert called in own_names(containers["prefect"])
    compose = _compose()["services"]
    called = urlsplit(compose["worker"]["environment"]["PREFECT_API_URL"]).hostname
    assert called in own_names(compose["server"]["environment"])


def test_base_job_template_makes_a_valid_kubernetes_job() -> None:
    import kubernetes_validate
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

    template = _base_job_template()
    defaults = {
        key: field["default"]
        for key, field in template["variables"]["properties"].items()
        if "default" in field
    }
    configuration = _filled(template["job_configuration"], defaults)
    job = KubernetesWorkerJobConfiguration.model_validate(configuration).job_manifest
    job["metadata"] = {"name": "flow-run", "namespace": job["metadata"]["namespace"]}
    pod = job["spec"]["template"]["spec"]
    # Prefect insists on them, Kubernetes leaves them out
    del pod["completions"], pod["parallelism"]
    (container,) = pod["containers"]
    container["args"] = container["args"].split()
    assert container["args"] == ["python", "-m", "prefect.engine"]
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


def status_of(app: ASGIApp, method: str = "GET", path: str = "/", **request: Any) -> int:
    """The status of the answer to one request."""

    async def ask() -> int:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server:4200") as client:
            return (await client.request(method, path, **request)).status_code

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"])
def test_api_documentation_pages_return_404(path: str) -> None:
    app = Starlette(routes=[Route("/{path:path}", lambda _: PlainTextResponse("about"))])
    assert status_of(own_pages_alone(app, ["server"], []), path=path) == 404


@pytest.mark.parametrize(
    ("method", "status"), [("GET", 404), ("HEAD", 404), ("PUT", 405), ("DELETE", 405)]
)
def test_folders_of_runs_are_served_read_only(tmp_path: Path, method: str, status: int) -> None:
    app = guarded(Starlette(), "ann:password", "/seatrial/runs", str(tmp_path))
    assert (
        status_of(app, method=method, path="/seatrial/runs/x", auth=("ann", "password")) == status
    )
    assert status_of(app, method=method, path="/seatrial/runs/x") == 401


_ASKED = """
import asyncio, httpx, uvicorn

def ask(app, **_):
    async def statuses():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as client:
            for headers in ({}, {"Host": "evil.example.com"}, {"Origin": "https://evil.example.com"}):
                yield (await client.get("/api/health", headers=headers)).status_code

    async def all_of_them():
        print(*[status async for status in statuses()])

    asyncio.run(all_of_them())

uvicorn.run = ask
"""


def test_the_server_of_a_run_has_a_single_name_and_no_pages() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ASKED + _SERVE, "0"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "200 400 403\n", done.stderr
