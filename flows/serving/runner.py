"""The process that starts the runs of `seatrial serve`.

python -m flows.serving.runner SITE      SITE is JSON; see flows/serving/site.py
"""

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Collection
from contextlib import suppress
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from flows.check import check
from flows.reap import reap
from flows.serving.automations import install_all
from flows.serving.holders import end, end_if_dead
from flows.serving.pinned import PinnedRunner
from flows.serving.signals import end_with_parent
from flows.serving.site import ServeConfig, deployments, first_date, with_choices

_STARTED = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING, StateType.PAUSED)


def main(site: ServeConfig) -> None:
    end_with_parent()
    # Prefect's own, when it is stopped
    warnings.filterwarnings("ignore", message="coroutine 'Runner.astop' was never awaited", category=RuntimeWarning)
    with get_client(sync_client=True) as client:
        off = switched_off(client)
    runner = PinnedRunner(name="seatrial")
    ids = {deployment.name: runner.serve_pinned(deployment) for deployment in deployments(site, off)}
    with get_client(sync_client=True) as client:
        end_what_an_earlier_runner_left(client, list(ids.values()))
        forget_clusters(client, ids["nightly"], set(site.names().values()))
        offer_choices(client, [ids["nightly"], ids["ad-hoc"]], site)
        install_all(client, ids["alarm"])
    for line in announced(site):
        print(line, flush=True)
    asyncio.run(runner.start())


def end_what_an_earlier_runner_left(client: SyncPrefectClient, served: list[UUID]) -> None:
    """Only one runner serves these deployments, so what an earlier one has started is over."""
    runs = client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=served)),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_STARTED))),
        ),
        limit=200,
    )
    for run in runs:
        if not end_if_dead(client, run):
            end(client, run.id, "what had started it has died")


def switched_off(client: SyncPrefectClient) -> set[tuple[str, str | None]]:
    """Deployment and slug of every schedule that a person has switched off."""
    schedules_off = set()
    for flow, name in ((check.name, "nightly"), (reap.name, "reap")):
        with suppress(ObjectNotFound):
            schedules = client.read_deployment_by_name(f"{flow}/{name}").schedules
            schedules_off |= {(name, schedule.slug) for schedule in schedules if not schedule.active}
    return schedules_off


def forget_clusters(client: SyncPrefectClient, nightly: UUID, served: Collection[str]) -> None:
    """Remove the schedules of clusters that are served no more: Prefect keeps those that it is not told of."""
    for schedule in client.read_deployment_schedules(nightly):
        if schedule.slug not in served:
            client.delete_deployment_schedule(nightly, schedule.id)


def offer_choices(client: SyncPrefectClient, checks: list[UUID], site: ServeConfig) -> None:
    """Have the run form list what there is."""
    schema = with_choices(parameter_schema(check).model_dump(), site)
    for deployment in checks:
        client.update_deployment(deployment, DeploymentUpdate(parameter_openapi_schema=schema))


def announced(site: ServeConfig) -> list[str]:
    """What a person at the terminal should know."""
    due = first_date(site.cron, site.timezone)
    url = os.environ["PREFECT_API_URL"].removesuffix("/api")
    nights = [
        f"nightly  {name}, suite {site.suite}: {site.cron} ({site.timezone}), next {due:%Y-%m-%d %H:%M}"
        for name in site.names().values()
    ]
    return [f"Prefect  {url}", *nights, f"ad-hoc   by its form at {url}/deployments", "reap     every 15 minutes"]


if __name__ == "__main__":
    main(ServeConfig(**{**(given := json.loads(sys.argv[1])), "clusters": tuple(given["clusters"])}))
