"""The process of `seatrial serve` that starts its runs.

python -m seatrial.flows.serving.runner SITE      SITE is a ServeConfig as JSON
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.settings import get_current_settings
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.callables import parameter_schema

from seatrial.checks.suites import SHIPPED
from seatrial.flows.alarm import alarm
from seatrial.flows.check import check
from seatrial.flows.promote import promote_run
from seatrial.flows.qualify import qualify
from seatrial.flows.reap import reap
from seatrial.flows.serving.automations import install_all
from seatrial.flows.serving.serve import REAP_CRON, ScheduledPass, ServeConfig, first_date
from seatrial.flows.serving.signals import end_runs, end_with_parent, starts_runs


class _Runner(Runner):
    def handle_sigterm(self, *_: Any, **__: Any) -> None:
        """End when the runs have taken their nodes down.

        Prefect's own handler kills them after 30 s and calls them cancelled. The event loop waits
        meanwhile, and what is due is left to the next runner.
        """
        end_runs(os.getpid())
        os._exit(0)


def main(site: ServeConfig) -> None:
    end_with_parent()
    starts_runs()
    # Not /tmp/runner_storage, the first user's alone
    tempfile.tempdir = str(get_current_settings().home)
    # Those that wait must not keep others from starting
    runner = _Runner(name="seatrial", limit=None)
    ids: dict[str, UUID] = {}
    for deployment in deployments(site):
        served = runner.add_deployment(deployment)
        assert isinstance(served, UUID)
        ids[deployment.name] = served
    with get_client(sync_client=True) as client:
        forget_clusters(client, ids["nightly"], {each.cluster for each in site.scheduled()})
        forget_clusters(client, ids["qualify"], {each.cluster for each in site.qualifying()})
        suites = [each.suite for each in site.scheduled()]
        form = with_choices(parameter_schema(check).model_dump(), site.clusters, suites)
        for name in ("nightly", "ad-hoc"):
            client.update_deployment(ids[name], DeploymentUpdate(parameter_openapi_schema=form))
        install_all(client, ids["alarm"])
        paused = {
            one.slug for one in client.read_deployment_schedules(ids["nightly"]) if not one.active
        }
    for line in announced(site, paused):
        print(line, flush=True)
    asyncio.run(runner.start())


def forget_clusters(client: SyncPrefectClient, deployment: UUID, served: Collection[str]) -> None:
    """Remove the schedules of clusters that are no longer served, which Prefect would keep."""
    for schedule in client.read_deployment_schedules(deployment):
        if schedule.slug not in served:
            client.delete_deployment_schedule(deployment, schedule.id)


def with_choices(
    schema: dict[str, Any], clusters: Sequence[str], suites: Sequence[str]
) -> dict[str, Any]:
    """Return the form's schema with this site's clusters and suites as choices, instead of paths to
    type. Pure.
    """
    fields = dict(schema["properties"])
    for name, legal in (
        ("cluster", list(clusters)),
        ("suite", list(dict.fromkeys([*SHIPPED, *suites]))),
    ):
        kept = {key: value for key, value in fields[name].items() if key != "anyOf"}
        # A list of choices accepts no path
        described = kept["description"].replace(", or the path of a suite file", "")
        fields[name] = {**kept, "type": "string", "enum": legal, "description": described}
    return {**schema, "properties": fields}


def deployments(site: ServeConfig) -> Iterator[RunnerDeployment]:
    """Return the deployments.

    `nightly` is a single one with a schedule per cluster, so that one list shows all.

    A schedule that a person has switched off stays off, because nothing here says `active`.
    """
    scheduled = site.scheduled()
    schedules = [_on_schedule(each, suite=each.suite) for each in scheduled]
    nightly = {"cluster": scheduled[0].file, "suite": scheduled[0].suite}
    reaping = DeploymentScheduleCreate(
        schedule=CronSchedule(cron=REAP_CRON, timezone="UTC"), slug="reap"
    )
    clusters = list(site.clusters)
    deploy = partial(
        RunnerDeployment.from_flow,
        entrypoint_type=EntrypointType.MODULE_PATH,
        enforce_parameter_schema=True,
    )
    yield deploy(check, "nightly", schedules=schedules, parameters=nightly, tags=["nightly"])
    yield deploy(check, "ad-hoc", parameters={"cluster": scheduled[0].file}, tags=["ad-hoc"])
    yield deploy(
        qualify,
        "qualify",
        schedules=[_on_schedule(each, watch=True) for each in site.qualifying()],
        parameters={"cluster": scheduled[0].file},
        tags=["qualify"],
    )
    yield deploy(reap, "reap", schedules=[reaping], parameters={"clusters": clusters})
    yield deploy(alarm, "alarm")
    yield deploy(promote_run, "promote")


def _on_schedule(each: ScheduledPass, **parameters: object) -> DeploymentScheduleCreate:
    """Return the schedule of a cluster, with further parameters of the flow."""
    return DeploymentScheduleCreate(
        schedule=CronSchedule(cron=each.cron, timezone=each.timezone),
        slug=each.cluster,
        parameters={"cluster": each.file, **parameters},
    )


def announced(site: ServeConfig, paused: Collection[str | None]) -> list[str]:
    """Return the lines that are shown at the terminal, by the clusters whose schedules are
    paused.
    """
    url = os.environ["PREFECT_API_URL"].removesuffix("/api")
    lines = [f"Prefect  {url}"]
    for each in site.scheduled():
        due = (
            "paused"
            if each.cluster in paused
            else f"next {first_date(each.cron, each.timezone):%Y-%m-%d %H:%M}"
        )
        lines.append(
            f"nightly  {each.cluster}, suite {each.suite}: {each.cron} ({each.timezone}), {due}"
        )
    for pass_ in site.qualifying():
        due = f"{first_date(pass_.cron, pass_.timezone):%Y-%m-%d %H:%M}"
        lines.append(f"qualify  {pass_.cluster}: {pass_.cron} ({pass_.timezone}), next {due}")
    return [*lines, f"ad-hoc   by its form at {url}/deployments", "reap     every 15 minutes"]


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    main(ServeConfig(**{**settings, "clusters": tuple(settings["clusters"])}))
