"""The deployments of `seatrial serve`: nightly, ad-hoc, reap, alarm and promote."""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from seatrial.alerts.settings import check_alerts
from seatrial.checks.suites import SHIPPED, load_suite
from seatrial.config.cluster import load_cluster
from seatrial.history import check_history
from seatrial.model.errors import InputError

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

REAP_CRON = "*/15 * * * *"
_TYPED = ", or the path of a suite file"  # says flows.check; who chooses types none


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Clusters, suite and schedule. Paths are absolute."""

    clusters: tuple[str, ...]
    suite: str
    cron: str
    timezone: str

    def names(self) -> dict[str, str]:
        """Return the clusters' names by their file. Raises InputError."""
        return {file: load_cluster(Path(file)).name for file in self.clusters}


def validated(site: ServeConfig) -> ServeConfig:
    """Return the site if it is valid, else raise InputError."""
    names = list(site.names().values())
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two of the cluster files name cluster {twice!r}; give each a name of its own")
    load_suite(site.suite)
    for file in site.clusters:
        check_alerts(load_cluster(Path(file)).notify)
    check_history()
    _check_schedule(site.cron, site.timezone)
    return site


def _check_schedule(cron: str, timezone: str) -> None:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        ZoneInfo(timezone)
        CronSchedule(cron=REAP_CRON, timezone=timezone)  # Prefect does not take all that there are: posix/...
    except (KeyError, ValueError, OSError) as error:
        raise InputError(f"--timezone {timezone}: unknown; legal are names such as Europe/Berlin, and UTC") from error
    try:
        first_date(cron, timezone)
    except ValidationError as error:
        legal = "needs minute, hour, day, month and weekday, such as '0 2 * * *'"
        raise InputError(f"--cron {cron!r}: {legal}") from error
    except ValueError as error:
        raise InputError(f"--cron {cron!r}: there is no such day; legal is what comes, such as '0 2 * * *'") from error


def first_date(cron: str, timezone: str) -> datetime:
    """Return the next date of a schedule. Raises ValueError if there is none, or if it is no schedule."""
    from prefect.server.schemas.schedules import CronSchedule

    (due,) = asyncio.run(CronSchedule(cron=cron, timezone=timezone).get_dates(1))
    return due


def local_timezone() -> str:
    """Return the name of the machine's time zone, or UTC."""
    where = Path("/etc/localtime").resolve().as_posix()
    return where.partition("/zoneinfo/")[2].removeprefix("posix/") or "UTC"


def with_choices(schema: dict[str, Any], site: ServeConfig) -> dict[str, Any]:
    """Return the form's schema with this site's clusters and suites as choices, instead of paths to type. Pure."""
    suites = dict.fromkeys([*SHIPPED, site.suite])
    chosen = {"cluster": list(site.clusters), "suite": list(suites)}
    fields = {
        name: _choice(field, chosen[name]) if name in chosen else field for name, field in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def _choice(field: dict[str, Any], legal: list[str]) -> dict[str, Any]:
    kept = {key: value for key, value in field.items() if key != "anyOf"}
    return {**kept, "type": "string", "enum": legal, "description": field["description"].replace(_TYPED, "")}


def deployments(site: ServeConfig, off: Collection[tuple[str, str | None]] = ()) -> "Iterator[RunnerDeployment]":
    """Return the deployments. `nightly` is a single one with a schedule per cluster, so that one list shows all.

    `off`: deployment and slug of schedules that stay switched off.
    """
    from prefect.deployments.runner import RunnerDeployment
    from prefect.flows import EntrypointType  # type: ignore[attr-defined]
    from prefect.schedules import Schedule

    from flows.alarm import alarm
    from flows.check import check
    from flows.promote import promote_run
    from flows.reap import reap

    common: dict[str, Any] = {"entrypoint_type": EntrypointType.MODULE_PATH, "enforce_parameter_schema": True}
    first = site.clusters[0]
    nights = [
        Schedule(
            cron=site.cron,
            timezone=site.timezone,
            slug=name,
            parameters={"cluster": file, "suite": site.suite},
            active=("nightly", name) not in off,
        )
        for file, name in site.names().items()
    ]
    nightly = {"cluster": first, "suite": site.suite}
    yield RunnerDeployment.from_flow(check, "nightly", schedules=nights, parameters=nightly, tags=["nightly"], **common)
    yield RunnerDeployment.from_flow(check, "ad-hoc", parameters={"cluster": first}, tags=["ad-hoc"], **common)
    every = [Schedule(cron=REAP_CRON, timezone="UTC", slug="reap", active=("reap", "reap") not in off)]
    yield RunnerDeployment.from_flow(
        reap, "reap", schedules=every, parameters={"clusters": list(site.clusters)}, **common
    )
    yield RunnerDeployment.from_flow(alarm, "alarm", **common)
    yield RunnerDeployment.from_flow(promote_run, "promote", **common)
