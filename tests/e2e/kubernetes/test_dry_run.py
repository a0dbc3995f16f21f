"""Every golden manifest before a real API server, which refuses fields that it does not know:
nothing is made.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient

from tests.e2e.kubernetes import standins, training
from tests.e2e.kubernetes.cluster import Cluster, Unavailable
from tests.e2e.kubernetes.standins import jobset as jobsets
from tests.e2e.kubernetes.standins import mpijob, trainjob
from tests.e2e.kubernetes.standins.world import Object
from tests.unit.kubernetes.golden import CLUSTERS, GOLDEN

pytestmark = pytest.mark.gate

DryRun = Callable[..., list[str]]


@pytest.fixture(scope="module")
def definitions(nodeless_cluster: Cluster) -> Iterator[None]:
    """All kinds that seatrial submits: PyTorchJob as its operator has it, the others as they are
    documented.
    """
    try:
        training.define(nodeless_cluster)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with ExitStack() as stack:
        for name in ("jobset", "mpijob", "trainjob", "compute-domain"):
            stack.enter_context(standins.definitions(nodeless_cluster, name))
        yield


@pytest.fixture
def dry_run(nodeless_cluster: Cluster, definitions: None, tmp_path: Path) -> DryRun:
    """Submit objects without effect, as seatrial submits them; the kinds of what the API server
    would have made.

    ApiException where one is refused.
    """
    client = config.new_client_from_config(str(nodeless_cluster.kubeconfig))
    api = DynamicClient(client, cache_file=str(tmp_path / "kinds.json"))

    def submit(*objects: Object) -> list[str]:
        made = []
        for body in objects:
            placed = {**body, "metadata": {**body["metadata"], "namespace": "default"}}
            resource = api.resources.get(api_version=body["apiVersion"], kind=body["kind"])
            query = [("dryRun", "All"), ("fieldValidation", "Strict")]
            answer = resource.create(body=placed, namespace="default", query_params=query).to_dict()
            assert answer["metadata"]["uid"]
            made.append(str(answer["kind"]))
        return made

    return submit


def golden(name: str) -> list[Object]:
    return list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))


@pytest.mark.parametrize("name", CLUSTERS)
def test_api_server_accepts_every_object_of_the_golden_files(dry_run: DryRun, name: str) -> None:
    objects = golden(name)
    assert dry_run(*objects) == [body["kind"] for body in objects]


@pytest.mark.parametrize(
    "name", ["jobset", "everything", "mpijob", "trainjob", "fragments", "nebius-h100"]
)
def test_the_jobs_and_pods_that_controllers_create_are_accepted(dry_run: DryRun, name: str) -> None:
    """The stand-ins' CRDs do not look at pods' specs."""
    *others, body = golden(name)
    body["metadata"]["uid"] = "0"
    match body["kind"]:
        case "JobSet":
            made = dry_run(jobsets.service(body), *jobsets.desired_jobs(body))
            assert made == ["Service", "Job"]
        case "MPIJob":
            pods = (mpijob.worker(body, 0), mpijob.launcher(body))
            assert dry_run(*mpijob.around(body), *pods)[-2:] == ["Pod", "Job"]
        case "TrainJob":
            jobset = trainjob.jobset(body, others[-1])
            assert dry_run(jobset) == ["JobSet"]
            jobset["metadata"]["uid"] = "1"
            assert dry_run(*jobsets.desired_jobs(jobset)) == ["Job"]
        case kind:
            pytest.fail(f"{name}: nothing is known of what becomes of a {kind}")


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("job", "Job", "spec.template.spec.containers.0.prob"),
        ("jobset", "JobSet", "spec.network.subdomains"),
        ("jobset", "JobSet", "spec.replicatedJobs.0.template.spec.mode"),
        ("pytorchjob", "PyTorchJob", "spec.runPolicy.deadline"),
        ("mpijob", "MPIJob", "spec.runPolicy.deadline"),
        ("trainjob", "TrainJob", "spec.trainer.nodes"),
        ("trainjob", "TrainingRuntime", "spec.template.spec.network.subdomains"),
        ("a4x", "ComputeDomain", "spec.channel.template"),
    ],
)
def test_api_server_refuses_an_unknown_field(
    dry_run: DryRun, name: str, kind: str, path: str
) -> None:
    body = next(each for each in golden(name) if each["kind"] == kind)
    place: Any = body
    *steps, field = path.split(".")
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    place[field] = "x"
    with pytest.raises(ApiException) as refused:
        dry_run(body)
    where = path.replace(".0.", "[0].")
    assert f'unknown field "{where}"' in json.loads(refused.value.body)["message"]
