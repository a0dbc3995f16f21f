"""The section `qualify` of a cluster file: tests of idle, new and repaired nodes of a cluster at
work.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from seatrial.config.yamlfile import Strict, no_boolean

AtOnce = Annotated[int, Field(ge=1, le=16), BeforeValidator(no_boolean)]
Days = Annotated[float, Field(gt=0, le=366), BeforeValidator(no_boolean)]
# Of a partition, QOS, account or PriorityClass
_NAME = r"^[A-Za-z0-9_]([A-Za-z0-9_.@:,/+-]{0,253}[A-Za-z0-9_])?$"


class Qualify(Strict):
    """Tests of idle nodes, and of those at the gate, beside the jobs of a cluster
    (docs/qualify.md).

    `seatrial serve` makes a pass at each time of `cron`. Without this section it makes none.
    """

    cron: str = Field(
        "0 * * * *",
        description="when `seatrial serve` makes a pass: minute, hour, day, month, weekday",
    )
    at_once: AtOnce = Field(4, description="nodes of one job; one at a time")
    max_age_days: Days = Field(
        7, description="days within which every node is tested; one is due at half of them"
    )
    pair_max_age_days: Days = Field(30, description="the same of every pair of leaf switches")
    dry_run: bool = Field(
        True, description="say which nodes would go in and out of service, and change nothing"
    )
    in_a_row: int = Field(
        3,
        ge=2,
        le=100,
        description="tests that fail alike in a row, after which no node is put out",
    )
    gate: str | None = Field(
        None,
        min_length=3,
        max_length=200,
        description="how drain reasons begin (Slurm), or the key of the taint, of nodes that wait for "
        "a test",
    )
    partition: str | None = Field(
        None, pattern=_NAME, description="Slurm: partition whose jobs may be preempted"
    )
    qos: str | None = Field(
        None, pattern=_NAME, description="Slurm: QOS whose jobs may be preempted"
    )
    account: str | None = Field(None, pattern=_NAME, description="Slurm: account of the tests")
    priority_class: str = Field(
        "seatrial-qualify",
        pattern=_NAME,
        description="Kubernetes: PriorityClass below all others (deployments/kubernetes/qualify.yaml)",
    )
