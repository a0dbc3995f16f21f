"""What a site runs: schedules, deployments, the form, the files for Docker and Kubernetes. No server here."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed, Crashed, Failed, Late, Running
from prefect.utilities.callables import parameter_schema
from pydantic import SecretStr

from flows.alarm import cluster_of, died, suite_of
from flows.artifacts import share
from flows.check import check
from flows.outcome import broken_off, came_to_a_verdict, state_of
from flows.site import Site, deployments, local_timezone, validated, with_choices
from seatrial.alerts.alert import Alert
from seatrial.alerts.config import Notify
from seatrial.alerts.incident import Receipt
from seatrial.alerts.settings import AlertSettings
from seatrial.cluster import load_cluster
from seatrial.errors import InputError, SeatrialError
from seatrial.history import open_store
from seatrial.metrics import target_of_environment
from seatrial.suite import load_suite
from seatrial.turn import FileLock, Place, held_by
from seatrial.verdict import Verdict
from tasks.notify import watch
from tasks.sinks import Files, Told, told_all
from tasks.sinks.webhook import WebhookSink
from tests.samples import healthy_local

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "trial.yaml"
    path.write_text("nodes: 2\nplatform: {kind: local}\n")
    return str(path)


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        (Verdict.PASS, "COMPLETED"),
        (Verdict.DEGRADED, "FAILED"),
        (Verdict.FAIL, "FAILED"),
        (Verdict.CORRUPT, "FAILED"),
        (Verdict.INCONCLUSIVE, "CRASHED"),
        (Verdict.NOT_RUN, "CRASHED"),
    ],
)
def test_failed_is_measured_and_bad_and_crashed_is_not_measured(verdict: Verdict, kind: str) -> None:
    state = state_of(replace(healthy_local(), verdict=verdict, reason="launch: no such image"))
    assert state.type.value == kind
    assert state.message == f"{verdict.value}: launch: no such image"
    assert came_to_a_verdict(state)


def test_a_run_that_was_broken_off_came_to_no_verdict() -> None:
    state = broken_off(SeatrialError("out/run.json cannot be written"))
    assert (state.type.value, state.message) == ("CRASHED", "could not measure: out/run.json cannot be written")
    assert not came_to_a_verdict(state)
    assert not came_to_a_verdict(Crashed())


def a_run(state: Any) -> FlowRun:
    return FlowRun(id=uuid4(), flow_id=uuid4(), state=state, parameters={"cluster": "/etc/seatrial/a4-gke.yaml"})


def test_the_alarm_tells_of_checks_that_died_or_did_not_start_and_of_no_others() -> None:
    assert died(a_run(Crashed(message="exit status -9"))) == "the check of a4-gke died: exit status -9"
    assert re.match(r"the check of a4-gke did not start at \S+ .*: is `seatrial serve`", died(a_run(Late())) or "")
    others: list[State[Any]] = [Crashed(message="inconclusive: launch: quota"), Failed(message="fail: slow")]
    for state in (*others, Running(), Completed()):
        assert died(a_run(state)) is None


def test_the_alarm_keeps_quiet_of_a_run_that_was_to_tell_nobody() -> None:
    run = a_run(Crashed(message="exit status -9"))
    run.parameters["notify"] = False
    assert died(run) is None


def test_the_alarm_knows_whom_to_tell(cluster: str) -> None:
    run = a_run(Crashed())
    run.parameters = {"cluster": cluster, "suite": "nightly"}
    assert (cluster_of(run), suite_of(run)) == (load_cluster(Path(cluster)), "nightly")


def test_a_check_that_died_of_a_file_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that the run's tag or the file has, as the history and the receivers take it."""
    for name in ("a4.yaml", "hard.yaml"):
        (tmp_path / name).write_text("nodes: many\n")
    run = a_run(Crashed(message="could not measure: a4.yaml: nodes"))
    run.parameters = {"cluster": str(tmp_path / "a4.yaml"), "suite": str(tmp_path / "hard.yaml")}
    assert (cluster_of(run).name, suite_of(run)) == ("a4", "hard")
    run.tags = ["nightly", "cluster:h100-east"]
    assert cluster_of(run).name == "h100-east"
    heard: list[str] = []

    def tell(_: WebhookSink, alert: Alert, receipt: Receipt, files: Files) -> Told:
        heard.append(f"{alert.incident.cluster}/{alert.incident.suite}: {alert.incident.reason}")
        return Told(told_all(alert, {}), "sent")

    monkeypatch.setattr(WebhookSink, "tell", tell)
    settings = AlertSettings(webhook=SecretStr("https://alerts.example.com/"))
    with open_store(f"sqlite:///{tmp_path / 'history.sqlite'}") as store:
        said = watch(cluster_of(run), suite_of(run), timedelta.max, store, settings, died(run))
    assert not said.failed
    assert heard == ["h100-east/hard: the check of a4 died: could not measure: a4.yaml: nodes"]


def test_how_far_a_run_is_grows_with_every_row_and_step() -> None:
    suite = load_suite("quick")
    steps = [("image", 0, 0), ("launch", 0, 0), ("collectives", 0, 0), ("collectives", 3, 0), ("collectives", 5, 0)]
    shares = [share(suite, *step) for step in [*steps, ("training", 9, 2), ("training", 9, 20), ("record", 9, 30)]]
    assert shares == sorted(set(shares))
    assert 0 <= shares[0] < shares[-1] < 100


def test_the_form_explains_itself() -> None:
    """Every field has a description or a choice; numbers have bounds."""
    fields = parameter_schema(check).model_dump()["properties"]
    assert list(fields) == ["cluster", "suite", "out", "notify", "rebuild", "wait_s"]
    assert all(field["description"] for field in fields.values())
    assert fields["suite"]["anyOf"][0]["enum"] == ["quick", "nightly", "acceptance"]
    assert (fields["wait_s"]["minimum"], fields["wait_s"]["maximum"]) == (0, 86_400)


def test_the_form_of_a_site_offers_its_own_clusters_and_suites() -> None:
    site = Site(("/a.yaml", "/b.yaml"), "/own.yaml", "0 2 * * *", "UTC")
    fields = with_choices(parameter_schema(check).model_dump(), site)["properties"]
    assert fields["cluster"]["enum"] == ["/a.yaml", "/b.yaml"]
    assert fields["suite"]["enum"] == ["quick", "nightly", "acceptance", "/own.yaml"]
    assert "anyOf" not in fields["suite"]
    assert fields["suite"]["description"]
    assert fields["wait_s"]["maximum"] == 86_400


def test_a_site_has_its_deployments_and_a_schedule_per_cluster(cluster: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("nodes: 2\nplatform: {kind: local}\n")
    found = {d.name: d for d in deployments(Site((cluster, str(other)), "nightly", "0 2 * * *", "Europe/Berlin"))}
    assert {"nightly", "ad-hoc", "reap", "alarm"} <= set(found)
    assert ("promote" in found) == bool(find_spec("flows.promote"))
    schedules: list[Any] = found["nightly"].schedules or []
    nights = [(s.slug, s.parameters["cluster"], s.schedule.timezone) for s in schedules]
    assert nights == [("trial", cluster, "Europe/Berlin"), ("other", str(other), "Europe/Berlin")]
    assert all(re.fullmatch(r"flows\.\w+\.\w+", deployment.entrypoint or "") for deployment in found.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cron": "at night"}, "--cron 'at night': needs minute"),
        ({"timezone": "Berlin"}, "--timezone Berlin: unknown; legal"),
        ({"suite": "hard"}, "suite 'hard': unknown; legal"),
    ],
)
def test_bad_schedules_are_one_line(cluster: str, change: dict[str, str], said: str) -> None:
    given = {"suite": "quick", "cron": "0 2 * * *", "timezone": "UTC", **change}
    with pytest.raises(InputError, match=re.escape(said)):
        validated(Site((cluster,), **given))


def test_clusters_of_one_name_are_refused(cluster: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("name: trial\nnodes: 2\nplatform: {kind: local}\n")
    with pytest.raises(InputError, match="two of the cluster files name cluster 'trial'"):
        validated(Site((cluster, str(other)), "quick", "0 2 * * *", "UTC"))


def test_a_site_whose_alerts_can_never_work_is_refused(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site((cluster,), "quick", "0 2 * * *", "UTC")
    assert validated(site) == site
    monkeypatch.setenv("SEATRIAL_ALERT_URLS", "carrierpigeon://x:secret@y")
    with pytest.raises(InputError, match=r"^SEATRIAL_ALERT_URLS: address 1 \(carrierpigeon://...\) is none"):
        validated(site)


def test_the_machines_time_zone_is_one() -> None:
    from zoneinfo import ZoneInfo

    assert ZoneInfo(local_timezone())


def test_a_lock_names_its_holder_and_is_free_when_its_holder_is_killed() -> None:
    take = "import time; from seatrial.turn import FileLock as L; print(L('a', 'run-1').take(), flush=True)"
    hold = f"{take}; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        try:
            assert other.stdout
            assert other.stdout.readline() == "True\n"
            mine = FileLock("a", "run-2")
            assert not mine.take()
            assert re.fullmatch(r"cluster a is being checked by run run-1 since .* UTC", mine.holder())
        finally:
            other.kill()
    assert mine.take()
    assert FileLock("b", "run-3").take()
    mine.close()


def test_a_place_knows_whether_its_process_is_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        here = Place.here()
        assert Place.parse(str(here)) == here
        assert not here.is_gone
        process.kill()
    gone = Place.parse(f"{here.machine} {process.pid} {here.process.started}")
    assert gone
    assert gone.is_gone
    assert not Place("another machine", gone.process).is_gone
    assert Place.parse("nonsense") is None
    assert held_by("a", "r", "now") == "cluster a is being checked by run r since now"


def _prefect_yaml() -> Any:
    return yaml.safe_load((DEPLOYMENTS / "prefect.yaml").read_text())


def test_prefect_yaml_has_what_serve_has(cluster: str) -> None:
    served = {d.name: d for d in deployments(Site((cluster,), "nightly", "0 2 * * *", "UTC"))}
    written = {d["name"]: d for d in _prefect_yaml()["deployments"]}
    assert set(served) | {"promote"} == set(written)
    for name, deployment in served.items():
        assert deployment.entrypoint == written[name]["entrypoint"]
        assert set(deployment.parameters) == set(written[name].get("parameters", {}))
        assert bool(deployment.schedules) == bool(written[name].get("schedules"))


def test_prefect_yaml_names_flows_and_parameters_that_there_are() -> None:
    for deployment in _prefect_yaml()["deployments"]:
        module, _, name = deployment["entrypoint"].rpartition(".")
        if module == "flows.promote" and not find_spec(module):
            continue
        accepted = parameter_schema(getattr(import_module(module), name)).model_dump()["properties"]
        assert set(deployment.get("parameters", {})) <= set(accepted)


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
    container["args"] = ["prefect"]
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
