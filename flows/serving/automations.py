"""Prefect's automations: end runs without a heartbeat, and raise the alarm when a check died.

python -m seatrial.flows.serving.automations      puts both in place, once the deployment `alarm` is
there
"""

from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from seatrial.flows.serving.server import HEARTBEAT_S

SILENCE_S = 3 * HEARTBEAT_S
_HEARTBEAT = "prefect.flow-run.heartbeat"
_EVERY_RUN = {"prefect.resource.id": "prefect.flow-run.*"}
_OF_THE_CHECK = {"prefect.resource.role": "flow", "prefect.resource.name": "seatrial-check"}
_OF_WHAT_HAS_NODES = {
    "prefect.resource.role": "flow",
    "prefect.resource.name": ["seatrial-check", "seatrial-qualify"],
}


def zombies() -> AutomationCore:
    """Return the automation that ends a run without a heartbeat: its process or machine is gone."""
    ended = {f"prefect.flow-run.{name}" for name in ("Completed", "Failed", "Cancelled", "Crashed")}
    return AutomationCore(
        name="seatrial: runs whose machine is gone",
        description="A flow run without a heartbeat is set to Crashed.",
        trigger=EventTrigger(
            match=_EVERY_RUN,
            match_related=_OF_WHAT_HAS_NODES,
            after={_HEARTBEAT},
            expect={_HEARTBEAT, *ended},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE_S),
        ),
        actions=[
            ChangeFlowRunState(state=StateType.CRASHED, message=f"no heartbeat for {SILENCE_S} s")
        ],
    )


def deaths(alarm: UUID) -> AutomationCore:
    """Return the automation that starts the deployment `alarm` for a check that crashed or is
    late.
    """
    return AutomationCore(
        name="seatrial: a check died or did not run",
        description="Starts the deployment alarm, which sends an alert.",
        trigger=EventTrigger(
            match=_EVERY_RUN,
            match_related=_OF_THE_CHECK,
            expect={"prefect.flow-run.Crashed", "prefect.flow-run.Late"},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(seconds=0),
        ),
        actions=[
            RunDeployment(
                source="selected",
                deployment_id=alarm,
                parameters={
                    "flow_run": {"__prefect_kind": "jinja", "template": "{{ flow_run.id }}"}
                },
            )
        ],
    )


def install(client: SyncPrefectClient, automation: AutomationCore) -> None:
    """Create the automation on the server, in place of an earlier one of its name that differs.

    One that stays goes on watching the runs whose heartbeats it has seen.
    """
    written = automation.model_dump()
    there = client.read_automations_by_name(automation.name)
    if [old.model_dump(include=set(written)) for old in there] == [written]:
        return
    for old in there:
        client.delete_automation(old.id)
    client.create_automation(automation)


def install_all(client: SyncPrefectClient, alarm: UUID) -> None:
    install(client, zombies())
    install(client, deaths(alarm))


if __name__ == "__main__":
    with get_client(sync_client=True) as prefect:
        install_all(prefect, prefect.read_deployment_by_name("seatrial-alarm/alarm").id)
