"""The tables of the store.

A change here needs a migration in seatrial/history/migrations/versions and a new HEAD.
"""

import math
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict

OLDEST = "0009"
HEAD = "0013"
# Not alembic's own name: the store may share a database with Prefect's server, which keeps its
# version under that name.
VERSION_TABLE = "seatrial_version"

metadata = MetaData()


class CleanText(TypeDecorator[str]):
    """Text from anywhere, a remote log included: what PostgreSQL or UTF-8 cannot hold is replaced,
    never an error.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else clean(value)


class CleanJson(TypeDecorator[Any]):
    """A document whose texts may come from anywhere; NaN and infinity, which JSON lacks, become
    texts.
    """

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return _cleaned(value)


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return clean(value) if isinstance(value, str) else value


def clean(text: str) -> str:
    """Return `text` as a CleanText column stores it."""
    if text.isascii() and "\0" not in text:  # nearly all is
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class ReasonDocument(CleanJson):
    """A reason as run.json has it; with its sentence, since other versions make another one."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return super().process_bind_param(value.to_dict(), dialect)

    def process_result_value(self, value: Any, dialect: Dialect) -> Reason:
        return Reason.from_dict(value)


class VerdictName(TypeDecorator[Verdict]):
    """A verdict, which is a text."""

    impl = String(16)
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Verdict | None:
        return Verdict(value) if value else None


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time, stored in UTC without a zone, because SQLite keeps none."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


def _run_id() -> Column[Any]:
    return Column(
        "run_id",
        CleanText,
        ForeignKey("runs.run_id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    )


runs = Table(
    "runs",
    metadata,
    Column("run_id", CleanText, primary_key=True),
    Column("cluster", CleanText, nullable=False),
    Column("suite", CleanText, nullable=False),
    Column("started", UtcDateTime, nullable=False),
    Column("finished", UtcDateTime, nullable=False),
    Column("verdict", VerdictName, nullable=False),
    Column("reason", ReasonDocument, nullable=False),
    Column("fingerprint", JSON, nullable=False),
    Column("out", CleanText, nullable=False),
    Column("setup", JSON),
    # None, some or all of its numbers; null in runs of earlier versions
    Column("judged", String(8)),
    Index("ix_runs_cluster_started", "cluster", "started"),
)

# What each check came to, and by itself (`found`) before its numbers were judged. `nth` is its
# place in the run.
checks = Table(
    "checks",
    metadata,
    Column("run_id", CleanText, ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("nth", Integer, primary_key=True, autoincrement=False),
    Column("name", CleanText, nullable=False),
    Column("verdict", VerdictName, nullable=False),
    Column("reason", ReasonDocument, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("found", CleanJson, nullable=False),
)

# What is measured, described once. `series_key` is a digest: a series names its subject, and a
# group of a thousand nodes is longer than PostgreSQL lets an index entry be.
series = Table(
    "series",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("series_key", String(64), nullable=False),
    Column("check_name", CleanText, nullable=False),
    Column("unit", CleanText, nullable=False),
    Column("series", CleanText, nullable=False),
    Column("metric", CleanText, nullable=False),
    Column("subject_kind", String(16), nullable=False),
    Column("subject_name", CleanText, nullable=False),
    Column("conditions", CleanJson, nullable=False),
    Column("better", String(8)),
    UniqueConstraint("series_key", "check_name", "unit", name="uq_series"),
)


def _place() -> list[Column[Any]]:
    """Return columns of a reading's key: run, series, and number within the series; rows of a run
    are adjacent.
    """
    return [
        Column(
            "run_id", CleanText, ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True
        ),
        Column(
            "series_id", Integer, ForeignKey("series.id"), primary_key=True, autoincrement=False
        ),
        Column("nth", Integer, primary_key=True, autoincrement=False),
    ]


# `value` is null where the number was not finite; `verdict` is the worst that its series was judged
# in that check.
readings = Table(
    "readings",
    metadata,
    *_place(),
    Column("value", Double),
    Column("verdict", String(16)),
    sqlite_with_rowid=False,
)
samples = Table(
    "samples", metadata, *_place(), Column("samples", JSON, nullable=False), sqlite_with_rowid=False
)

# What the nodes were made of: one row for those that are alike, with their names; `ids` are digests
# of serials by name.
node_hardware = Table(
    "node_hardware",
    metadata,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("gpu_model", CleanText, nullable=False),
    Column("gpu_clock_mhz", Integer),
    Column("cpu_model", CleanText, nullable=False),
    Column("driver", CleanText, nullable=False),
    Column("nodes", CleanJson, nullable=False),
    Column("ids", CleanJson),
)

# What a run found of each of its nodes, also in runs that are removed: the age of tests outlives
# them. `partner` is the other node of a test of two, `held_s` how long the run held the node.
node_tests = Table(
    "node_tests",
    metadata,
    Column("run_id", CleanText, primary_key=True),
    Column("node", CleanText, primary_key=True),
    Column("cluster", CleanText, nullable=False),
    Column("suite", CleanText, nullable=False),
    Column("ended", UtcDateTime, nullable=False),
    Column("verdict", VerdictName, nullable=False),
    Column("code", String(100)),
    Column("partner", CleanText),
    Column("gpus", Integer, nullable=False),
    Column("held_s", Double, nullable=False),
    Index("ix_node_tests_cluster_ended", "cluster", "ended"),
)

# Suites in a loop over a cluster, with the runs of their phases; `plan` is a digest of the suite
# file.
campaigns = Table(
    "campaigns",
    metadata,
    Column("campaign_id", CleanText, primary_key=True),
    Column("cluster", CleanText, nullable=False),
    Column("suite", CleanText, nullable=False),
    Column("plan", String(64), nullable=False),
    Column("goal_s", Double, nullable=False),
    Column("started", UtcDateTime, nullable=False),
    Column("seen", UtcDateTime, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("phases", CleanJson, nullable=False),
    Column("left_out", CleanJson, nullable=False),
    Index("ix_campaigns_cluster_started", "cluster", "started"),
)

# A metric of every part in each minute of a run, packed: `readings` has one row a time and one
# column a part.
minutes = Table(
    "minutes",
    metadata,
    Column("run_id", CleanText, ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("metric", String(64), primary_key=True),
    Column("parts", CleanJson, nullable=False),
    Column("times_s", JSON, nullable=False),
    Column("readings", LargeBinary, nullable=False),
)

suspects = Table(
    "suspects",
    metadata,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("kind", String(16), nullable=False),
    Column("name", CleanText, nullable=False),
    Column("confidence", Double, nullable=False),
    # Null in suspects of earlier versions
    Column("verdict", VerdictName),
    Column("reason", ReasonDocument, nullable=False),
)

# A pin outlives the run it was taken from, so `run_id` is no foreign key here.
baselines = Table(
    "baselines",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("cluster", CleanText, nullable=False),
    Column("series", CleanText, nullable=False),
    Column("series_key", String(64), nullable=False),
    Column("low", Double),
    Column("centre", Double, nullable=False),
    Column("high", Double),
    Column("unit", CleanText, nullable=False),
    Column("pinned_by", CleanText, nullable=False),
    Column("pinned_at", UtcDateTime, nullable=False),
    Column("run_id", CleanText),
    Column("note", CleanText, nullable=False),
    UniqueConstraint("cluster", "series_key", name="uq_baselines_cluster_series"),
)

# What is wrong, and who has heard of it. It outlives its runs: they are named in words, not by
# foreign keys.
incidents = Table(
    "incidents",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("cluster", CleanText, nullable=False),
    Column("suite", CleanText, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("opened", UtcDateTime, nullable=False),
    Column("seen", UtcDateTime, nullable=False),
    Column("closed", UtcDateTime),
    Column("last_run", CleanText, nullable=False),
    Column("verdict", VerdictName, nullable=False),
    Column("worst", VerdictName, nullable=False),
    Column("reason", ReasonDocument, nullable=False),
    Column("suspects", JSON, nullable=False),
    Column("checks", JSON, nullable=False),
    Column("nights", Integer, nullable=False),
    Column("changes", JSON, nullable=False),
    Column("receipts", JSON, nullable=False),
    Column("settled", Boolean, nullable=False),
    Index("ix_incidents_cluster_settled", "cluster", "settled"),
)
