"""A local cluster that plays one at work: jobs that have nodes, nodes at the gate, and nodes out of
service.

A job that starts on a node ends the test that has it, as a
scheduler with preemption does.

    python -m tests.busy CLUSTER job NAME NODE...      a job starts on the nodes
    python -m tests.busy CLUSTER end NAME              it ends
    python -m tests.busy CLUSTER gate NODE...          nodes come to the gate
    python -m tests.busy CLUSTER show
"""

import sys
from collections.abc import Sequence
from contextlib import suppress

from seatrial.model.errors import InputError
from seatrial.platforms import state as states
from seatrial.platforms.local.platform import PLATFORM
from seatrial.platforms.local.stage import opened, read

_MOST_GIVEN = 100  # most runs that gave way to remember, the latest ones


def start_job(cluster: str, job: str, nodes: Sequence[str]) -> list[str]:
    """Start a job on the nodes; end the runs that use them, and return their ids.

    Raises InputError for a busy node.
    """
    with opened(cluster) as (stage, keep):
        for node in nodes:
            if (
                other := stage.job_on(node)
                or stage.out.get(node)
                or (node in stage.gated and "it is at the gate")
            ):
                raise InputError(f"{node}: is not free: {other}")
        ended = []
        for folder in states.folders("local"):
            with suppress(InputError):  # the run has only just begun, or is ending
                described = states.recall(folder)
                if described.name == cluster and set(nodes) & set(described.node_names()):
                    ended.append(folder.name)
                    stage.given[folder.name] = job
        stage.given = dict(list(stage.given.items())[-_MOST_GIVEN:])
        stage.jobs[job] = list(nodes)
        keep()
    for run_id in ended:
        PLATFORM.teardown(run_id)
    return ended


def end_job(cluster: str, job: str) -> None:
    """End a job; its nodes are idle again."""
    with opened(cluster) as (stage, keep):
        stage.jobs.pop(job, None)
        keep()


def main(arguments: Sequence[str]) -> int:
    """Change the simulated cluster as the command line says; see the module."""
    match list(arguments):
        case [cluster, "job", name, *nodes] if nodes:
            for run_id in start_job(cluster, name, nodes):
                sys.stdout.write(f"run {run_id} gave way\n")
        case [cluster, "end", name]:
            end_job(cluster, name)
        case [cluster, "gate", *nodes] if nodes:
            with opened(cluster) as (stage, keep):
                for node in nodes:
                    stage.gated[node] = ""
                    stage.out.pop(node, None)
                keep()
        case [cluster, "show"]:
            sys.stdout.write(f"{read(cluster).model_dump_json(indent=1)}\n")
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
