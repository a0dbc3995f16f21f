"""What a site runs: schedules, deployments, the form, the alarm. No server here."""

import json
import os
import re
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock
from uuid import uuid4

import httpx
import pytest
import yaml
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed, Crashed, Failed, Late, Running
from prefect.utilities.callables import parameter_schema
from pydantic import SecretStr

from seatrial.alerts.alert import Alert
from seatrial.alerts.settings import AlertSettings
from seatrial.checks.suites import SHIPPED
from seatrial.config.cluster import load_cluster
from seatrial.flows.alarm import alert_text, cluster_of, suite_of
from seatrial.flows.check import check
from seatrial.flows.serving import ui
from seatrial.flows.serving.automations import SILENCE_S
from seatrial.flows.serving.runner import announced, deployments, with_choices
from seatrial.flows.serving.serve import ServeConfig, local_timezone, validated
from seatrial.flows.serving.server import provide_prefect_server
from seatrial.flows.serving.ui import crashed_state, has_verdict, state_of
from seatrial.history import open_store
from seatrial.history.incident import Receipt
from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.reason import uncoded
from seatrial.model.verdict import Verdict
from seatrial.runs.login import holds
from seatrial.tasks.notify import _history, watch
from seatrial.tasks.sinks import Delivery, Files, full_receipt
from seatrial.tasks.sinks.bounded import BoundedSink
from tests.samples import healthy_local
from tests.site import SITES_DEPLOYMENTS

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"
_BEAT = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "trial.yaml"
    path.write_text("nodes: 2\nplatform: {kind: local}\n")
    return str(path)


def test_folder_of_a_run_that_is_found_by_its_id_is_not_used_for_another(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", str(uuid4()))
    earlier = healthy_local()
    folder = tmp_path / "runs" / earlier.run_id
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(earlier.to_dict()))
    state = check.fn(cluster, out=str(folder))
    assert state.is_crashed()
    assert "is the folder of the run of that id, which would be lost" in str(state.message)
    assert holds(str(folder), earlier.run_id)


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
def test_flow_state_is_failed_for_bad_and_crashed_for_unmeasured_verdicts(
    verdict: Verdict, kind: str
) -> None:
    state = state_of(
        replace(healthy_local(), verdict=verdict, reason=uncoded("launch: no such image"))
    )
    assert state.type.value == kind
    assert state.message == f"{verdict.value}: launch: no such image"
    assert has_verdict(state)
    assert (state.data is None) is (kind != "COMPLETED")  # or Prefect would raise it


def test_a_run_that_was_broken_off_came_to_no_verdict() -> None:
    state = crashed_state(SeatrialError("out/run.json cannot be written"))
    assert (state.type.value, state.message) == (
        "CRASHED",
        "could not measure: out/run.json cannot be written",
    )
    assert not has_verdict(state)
    assert not has_verdict(Crashed())


def a_run(state: Any) -> FlowRun:
    return FlowRun(
        id=uuid4(),
        flow_id=uuid4(),
        state=state,
        parameters={"cluster": "/etc/seatrial/a4-gke.yaml"},
    )


def test_the_alarm_tells_of_checks_that_died_or_did_not_start_and_of_no_others() -> None:
    assert (
        alert_text(a_run(Crashed(message="exit status -9")))
        == "the check of a4-gke died: exit status -9"
    )
    assert re.match(
        r"the check of a4-gke did not start at \S+ .*: is `seatrial serve`",
        alert_text(a_run(Late())) or "",
    )
    stopped: State[Any] = Crashed(message="Execution was aborted by a termination signal.")
    assert (
        alert_text(a_run(stopped))
        == "the check of a4-gke was cut off: `seatrial serve`, or the worker, was stopped"
    )
    others: list[State[Any]] = [
        Crashed(message="inconclusive: launch: quota"),
        Failed(message="fail: slow"),
    ]
    for state in (*others, Running(), Completed()):
        assert alert_text(a_run(state)) is None
    silent = a_run(Crashed(message="exit status -9"))
    silent.parameters["notify"] = False
    assert alert_text(silent) is None


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the one receiver, a webhook, is told."""
    summaries: list[str] = []

    def send(_: BoundedSink, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        summaries.append(
            f"{alert.incident.cluster}/{alert.incident.suite}: {alert.incident.reason}"
        )
        return Delivery(full_receipt(alert, {}), "sent")

    monkeypatch.setattr(BoundedSink, "send", send)
    return summaries


WEBHOOK = AlertSettings(webhook=SecretStr("https://alerts.example.com/"))


def test_the_alarm_names_cluster_and_suite_even_if_their_files_are_broken(
    cluster: str, tmp_path: Path, heard: list[str]
) -> None:
    """By the name that the run's tag or the file has, as the history and the receivers take it."""
    run = a_run(Crashed(message="could not measure: a4.yaml: nodes"))
    run.parameters = {"cluster": cluster, "suite": "nightly"}
    assert (cluster_of(run), suite_of(run)) == (load_cluster(Path(cluster)), "nightly")
    for name in ("a4.yaml", "hard.yaml"):
        (tmp_path / name).write_text("nodes: many\n")
    run.parameters = {"cluster": str(tmp_path / "a4.yaml"), "suite": str(tmp_path / "hard.yaml")}
    assert (cluster_of(run).name, suite_of(run)) == ("a4", "hard")
    run.tags = ["nightly", "cluster:h100-east"]
    assert cluster_of(run).name == "h100-east"
    with open_store(f"sqlite:///{tmp_path / 'history.sqlite'}") as store:
        notified = watch(
            cluster_of(run), suite_of(run), timedelta.max, store, WEBHOOK, alert_text(run)
        )
    assert not notified.failed
    assert heard == ["h100-east/hard: the check of a4 died: could not measure: a4.yaml: nodes"]


def test_a_died_check_is_reported_without_a_history(
    cluster: str, tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may have died of the same cause. Whether a run is late cannot be told then."""
    monkeypatch.setenv("SEATRIAL_HISTORY", f"sqlite:///{tmp_path}")  # a folder is no database
    with _history("the check of trial died") as store:
        watch(
            load_cluster(Path(cluster)),
            "nightly",
            timedelta.max,
            store,
            WEBHOOK,
            "the check of trial died",
        )
    assert heard == ["trial/nightly: the check of trial died"]
    with pytest.raises(SeatrialError, match="history"), _history(None):
        pytest.fail("a check would pass for late, or not, by a history that cannot be read")


def test_every_field_of_the_form_is_described_or_a_choice() -> None:
    """Every field has a description or a choice; numbers have bounds."""
    fields = parameter_schema(check).model_dump()["properties"]
    assert list(fields) == [
        "cluster",
        "suite",
        "out",
        "notify",
        "rebuild",
        "wait_s",
        "require_baseline",
        "budget_s",
        "only",
    ]
    assert all(field["description"] for field in fields.values())
    assert fields["suite"]["anyOf"][0]["enum"] == [*SHIPPED]
    assert (fields["wait_s"]["minimum"], fields["wait_s"]["maximum"]) == (0, 86_400)


def test_the_form_of_a_site_offers_its_own_clusters_and_suites() -> None:
    fields = with_choices(
        parameter_schema(check).model_dump(), ["/a.yaml", "/b.yaml"], ["/own.yaml"]
    )["properties"]
    assert fields["cluster"]["enum"] == ["/a.yaml", "/b.yaml"]
    assert fields["suite"]["enum"] == [*SHIPPED, "/own.yaml"]
    assert "anyOf" not in fields["suite"]
    described = "A shipped suite, such as quick; see `seatrial suites`."
    assert fields["suite"]["description"] == described
    assert fields["wait_s"]["maximum"] == 86_400


def test_a_site_has_its_deployments_and_a_schedule_per_cluster(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        "nodes: 2\nplatform: {kind: local}\nschedule: {suite: quick, cron: 30 5 * * 1}\n"
        "qualify: {}\n"
    )
    site = ServeConfig((cluster, str(other)), timezone="Europe/Berlin")
    by_name = {d.name: d for d in deployments(site)}
    assert set(by_name) == SITES_DEPLOYMENTS
    hourly: list[Any] = by_name["qualify"].schedules or []
    passes = [(s.slug, s.parameters, s.schedule.cron) for s in hourly]
    assert passes == [("other", {"cluster": str(other), "watch": True}, "0 * * * *")]
    schedules: list[Any] = by_name["nightly"].schedules or []
    nights = [
        (s.slug, s.parameters["cluster"], s.parameters["suite"], s.schedule.cron) for s in schedules
    ]
    assert nights == [
        ("trial", cluster, "nightly", "0 2 * * *"),
        ("other", str(other), "quick", "30 5 * * 1"),
    ]
    assert {s.schedule.timezone for s in schedules} == {"Europe/Berlin"}
    monkeypatch.setenv("PREFECT_API_URL", "http://here/api")
    trial, paused, qualify = announced(site, ["other"])[1:4]
    assert re.match(r"qualify  other: 0 \* \* \* \* \(Europe/Berlin\), next ", qualify)
    assert re.search(r", next \d{4}-\d\d-\d\d 02:00$", trial)
    assert paused == "nightly  other, suite quick: 30 5 * * 1 (Europe/Berlin), paused"
    over = deployments(ServeConfig(site.clusters, suite="acceptance"))
    assert {
        (s.parameters or {})["suite"]
        for d in over
        for s in d.schedules or []
        if d.name == "nightly"
    } == {"acceptance"}
    entrypoints = [deployment.entrypoint or "" for deployment in by_name.values()]
    assert all(re.fullmatch(r"seatrial\.flows\.\w+\.\w+", entrypoint) for entrypoint in entrypoints)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cron": "at night"}, "--cron 'at night': needs minute"),
        ({"cron": "0 0 2 * * *"}, "--cron '0 0 2 * * *': needs minute"),
        (
            {"cron": "0 0 30 2 *"},
            "--cron '0 0 30 2 *': there is no such day; legal is what comes, such as",
        ),
        ({"timezone": "Berlin"}, "--timezone Berlin: unknown; legal"),
        ({"timezone": "posix/Europe/Berlin"}, "--timezone posix/Europe/Berlin: unknown; legal"),
        ({"suite": "hard"}, "suite 'hard': unknown; legal"),
    ],
)
def test_bad_schedules_are_one_line(cluster: str, change: dict[str, str], message: str) -> None:
    schedule = {"suite": "quick", "cron": "0 2 * * *", "timezone": "UTC", **change}
    with pytest.raises(InputError, match=re.escape(message)):
        validated(ServeConfig((cluster,), **schedule))


def test_clusters_of_one_name_are_refused(cluster: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("name: trial\nnodes: 2\nplatform: {kind: local}\n")
    with pytest.raises(InputError, match="two of the cluster files name cluster 'trial'"):
        validated(ServeConfig((cluster, str(other)), "quick", "0 2 * * *", "UTC"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "SEATRIAL_ALERT_URLS",
            "carrierpigeon://x:secret@y",
            r": address 1 \(carrierpigeon://...\) is none",
        ),
        (
            "SEATRIAL_HISTORY",
            "postgresql://ann:ge@heim@host/db",
            ": an @ in a user or password must be written as",
        ),
    ],
)
def test_a_site_whose_alerts_or_history_can_never_work_is_refused(
    cluster: str, name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ServeConfig((cluster,), "quick", "0 2 * * *", "UTC")
    assert validated(site) == site
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"^{name}{message}"):
        validated(site)


def test_local_timezone_is_a_valid_time_zone() -> None:
    from zoneinfo import ZoneInfo

    assert ZoneInfo(local_timezone())


def _prefect_yaml() -> Any:
    return yaml.safe_load((DEPLOYMENTS / "prefect.yaml").read_text())


def test_prefect_yaml_has_the_same_deployments_and_parameters_as_serve(cluster: str) -> None:
    served = {
        d.name: d for d in deployments(ServeConfig((cluster,), "nightly", "0 2 * * *", "UTC"))
    }
    written = {d["name"]: d for d in _prefect_yaml()["deployments"]}
    assert set(served) == set(written)
    for name, deployment in served.items():
        assert deployment.entrypoint == written[name]["entrypoint"]
        assert set(deployment.parameters) == set(written[name].get("parameters", {}))
        assert bool(deployment.schedules) == bool(written[name].get("schedules"))
        module, _, flow = written[name]["entrypoint"].rpartition(".")
        accepted = parameter_schema(getattr(import_module(module), flow)).model_dump()["properties"]
        assert set(written[name].get("parameters", {})) <= set(accepted)


def test_every_run_sends_heartbeats_three_times_per_silence_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a pool and by hand; Prefect's default of 180 s would have a working run declared dead."""
    for name, value in {
        _BEAT: "",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "",
        "PREFECT_API_URL": "http://x/api",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(_BEAT)
    provide_prefect_server()
    beats = [
        deployment["work_pool"]["job_variables"]["env"][_BEAT]
        for deployment in _prefect_yaml()["deployments"]
    ]
    assert {*beats, os.environ[_BEAT]} == {str(SILENCE_S // 3)}


# Whatever Prefect's server does while a run is decorated, the run goes on.


ERRORS = [
    httpx.ConnectError("away"),
    ObjectNotFound(ValueError("gone")),
    ValueError("no JSON"),
    TypeError("no list"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_server_error_loses_only_the_display_in_prefect(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = MagicMock()
    server.__enter__.return_value.read_flow_run.side_effect = error
    monkeypatch.setattr(ui, "get_client", Mock(return_value=server))
    server.__exit__.return_value = False
    monkeypatch.setattr(ui, "current", Mock(id=str(uuid4())))
    caplog.set_level("DEBUG", logger="seatrial")
    ui.show_verdict(Mock())
    assert "Prefect does not show it" in caplog.text
