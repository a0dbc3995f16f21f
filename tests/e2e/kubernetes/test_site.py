"""deployments/server/kubernetes, started: server, database, worker, and checks in Jobs that pass,
are cut off, die.
"""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.closing_lines import without_extent
from tests.e2e.kubernetes.cluster import Cluster, Unavailable
from tests.e2e.kubernetes.images import SERVER
from tests.e2e.kubernetes.services import services
from tests.e2e.kubernetes.site import (
    DATABASE_PASSWORD,
    HISTORY_PASSWORD,
    NAMESPACE,
    PASSWORD,
    Site,
    site,
)
from tests.site import SITES_DEPLOYMENTS, TLS


@pytest.fixture(scope="module")
def running(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if not cluster.machine:
        pytest.skip("no site is put on a cluster that is somebody else's")
    try:
        with services(cluster), site(cluster, tmp_path_factory.mktemp("site")) as made:
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_worker_registers_pool_deployments_and_automations(running: Site) -> None:
    pool = running.api("GET", "/work_pools/seatrial-kubernetes")
    (container,) = pool["base_job_template"]["job_configuration"]["job_manifest"]["spec"][
        "template"
    ]["spec"]["containers"]
    assert container["image"] == SERVER
    names = {each["name"] for each in running.api("POST", "/deployments/filter", limit=50)}
    assert names == SITES_DEPLOYMENTS
    automations = {each["name"] for each in running.api("POST", "/automations/filter", limit=50)}
    assert automations == {
        "seatrial: runs whose machine is gone",
        "seatrial: a check died or did not run",
    }


def test_people_see_the_pages_and_nobody_gets_in_without_the_password(running: Site) -> None:
    page = httpx.get(
        running.url, headers={"Accept": "text/html"}, follow_redirects=True, timeout=60, verify=TLS
    )
    assert page.status_code == 200
    assert "<title>Prefect" in page.text
    assert (
        httpx.post(
            f"{running.url}/api/flow_runs/filter", json={}, timeout=60, verify=TLS
        ).status_code
        == 401
    )


def test_a_check_runs_in_a_job_of_its_own_and_passes(running: Site) -> None:
    flow_run = running.start("seatrial-check/ad-hoc", suite="/clusters/brief.yaml")
    state, message = running.ended(flow_run)
    assert state == "Completed", running.log(flow_run)
    assert without_extent(message) == "pass: connectivity, collectives: all pass"
    assert running.nodes() == ""
    (job,) = running.jobs(flow_run)
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "seatrial"
    query = ("psql", "-U", "prefect", "-d", "seatrial", "-t", "-c", "select verdict from runs")
    assert running.kubectl("exec", "postgres-0", "--", *query).split() == ["pass"]


def test_all_of_the_server_runs_in_a_namespace_of_its_own(running: Site) -> None:
    pods = running.cluster.get("pods", "-n", NAMESPACE)["items"]
    assert {pod["metadata"]["labels"]["app"] for pod in pods} == {
        "postgres",
        "prefect",
        "seatrial-worker",
    }
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}


def test_the_user_of_the_history_cannot_read_prefects_database(running: Site) -> None:
    def connect(database: str) -> str:
        address = f"postgresql://seatrial:{HISTORY_PASSWORD}@127.0.0.1/{database}"
        return running.kubectl("exec", "postgres-0", "--", "psql", address, "-t", "-c", "select 1")

    assert connect("seatrial").split() == ["1"]
    with pytest.raises(AssertionError, match="permission denied for database"):
        connect("prefect")


def test_a_cancelled_check_takes_its_nodes_down(running: Site) -> None:
    flow_run = running.sweeping()
    assert running.jobs(flow_run)
    running.api("POST", f"/flow_runs/{flow_run}/set_state", state={"type": "CANCELLING"})
    assert running.ended(flow_run)[0] == "Cancelled"
    running.until(lambda: running.nodes() == "", 60, running.nodes)
    running.until(  # Prefect's worker may delete the Job
        lambda: not any(job["status"].get("active") for job in running.jobs(flow_run)),
        60,
        lambda: running.log(flow_run),
    )


def test_a_check_whose_pod_is_deleted_takes_its_nodes_down_and_does_not_begin_anew(
    running: Site,
) -> None:
    flow_run = running.sweeping()
    (pod,) = running.pods(flow_run)
    running.kubectl_runs("delete", "pod", pod["metadata"]["name"], "--wait=false")
    assert running.ended(flow_run)[0] == "Crashed"
    running.until(lambda: running.nodes() == "", 60, running.nodes)
    assert len(running.jobs(flow_run)) == 1


def test_the_nodes_of_a_check_that_is_killed_are_reaped(running: Site) -> None:
    running.switch_off("seatrial-reap/reap")  # or the one that is due might come first
    flow_run = running.sweeping()
    (pod,) = running.pods(flow_run)
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    kill = (
        "ctr",
        "--namespace",
        "k8s.io",
        "tasks",
        "kill",
        "--signal",
        "SIGKILL",
        "--all",
        container,
    )
    running.cluster.on_node(pod["spec"]["nodeName"], *kill)
    assert running.ended(flow_run) == ("Crashed", "No active or succeeded pods found for any job")
    assert running.nodes()
    reap = running.start("seatrial-reap/reap")
    assert running.ended(reap) == ("Completed", "leftovers of 1 run removed"), running.log(reap)
    assert running.nodes() == ""


def test_no_password_is_in_jobs_or_logs_and_the_worker_lacked_no_right(running: Site) -> None:
    """Runs last, so that the logs hold what the other tests of this module did."""
    jobs = running.kubectl_runs("get", "jobs,pods", "--output", "yaml")
    worker = running.kubectl("logs", "deployment/seatrial-worker")
    assert "prefect.io/flow-run-id" in jobs
    assert "started!" in worker
    pool = json.dumps(running.api("GET", "/work_pools/seatrial-kubernetes"))
    runs = json.dumps(running.api("POST", "/flow_runs/filter", limit=200))
    for text in (jobs, worker, pool, runs):
        assert not [
            word for word in (PASSWORD, DATABASE_PASSWORD, HISTORY_PASSWORD) if word in text
        ]
    assert "403" not in worker
    assert "orbidden" not in worker
