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


def _required(kind: Any, *names: str) -> list[Column[Any]]:
    """Return columns of one type that no row leaves empty."""
    return [Column(name, kind, nullable=False) for name in names]


def _run_id(**options: Any) -> Column[Any]:
    """Return the column of a run, with which the row is removed."""
    of_run = ForeignKey("runs.run_id", ondelete="CASCADE")
    return Column("run_id", CleanText, of_run, **options)


runs = Table(
    "runs",
    metadata,
    Column("run_id", CleanText, primary_key=True),
    *_required(CleanText, "cluster", "suite", "out"),
    *_required(UtcDateTime, "started", "finished"),
    *_required(VerdictName, "verdict"),
    *_required(ReasonDocument, "reason"),
    *_required(JSON, "fingerprint"),
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
    _run_id(primary_key=True),
    Column("nth", Integer, primary_key=True, autoincrement=False),
    *_required(CleanText, "name"),
    *_required(VerdictName, "verdict"),
    *_required(ReasonDocument, "reason"),
    *_required(Double, "seconds"),
    *_required(CleanJson, "found"),
)

# What is measured, described once. `series_key` is a digest: a series names its subject, and a
# group of a thousand nodes is longer than PostgreSQL lets an index entry be.
series = Table(
    "series",
    metadata,
    Column("id", Integer, primary_key=True),
    *_required(String(64), "series_key"),
    *_required(CleanText, "check_name", "unit", "series", "metric", "subject_name"),
    *_required(String(16), "subject_kind"),
    *_required(CleanJson, "conditions"),
    Column("better", String(8)),
    UniqueConstraint("series_key", "check_name", "unit", name="uq_series"),
)


def _place() -> list[Column[Any]]:
    """Return columns of a reading's key: run, series, and number within the series; rows of a run
    are adjacent.
    """
    return [
        _run_id(primary_key=True),
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
    "samples", metadata, *_place(), *_required(JSON, "samples"), sqlite_with_rowid=False
)

# What the nodes were made of: one row for those that are alike, with their names; `ids` are digests
# of serials by name.
node_hardware = Table(
    "node_hardware",
    metadata,
    Column("id", Integer, primary_key=True),
    _run_id(nullable=False, index=True),
    *_required(CleanText, "gpu_model", "cpu_model", "driver"),
    Column("gpu_clock_mhz", Integer),
    *_required(CleanJson, "nodes"),
    Column("ids", CleanJson),
)

# What a run found of each of its nodes, also in runs that are removed: the age of tests outlives
# them. `partner` is the other node of a test of two, `held_s` how long the run held the node.
node_tests = Table(
    "node_tests",
    metadata,
    Column("run_id", CleanText, primary_key=True),
    Column("node", CleanText, primary_key=True),
    *_required(CleanText, "cluster", "suite"),
    *_required(UtcDateTime, "ended"),
    *_required(VerdictName, "verdict"),
    Column("code", String(100)),
    Column("partner", CleanText),
    *_required(Integer, "gpus"),
    *_required(Double, "held_s"),
    Index("ix_node_tests_cluster_ended", "cluster", "ended"),
)

# Suites in a loop over a cluster, with the runs of their phases; `plan` is a digest of the suite
# file.
campaigns = Table(
    "campaigns",
    metadata,
    Column("campaign_id", CleanText, primary_key=True),
    *_required(CleanText, "cluster", "suite"),
    *_required(String(64), "plan"),
    *_required(Double, "goal_s"),
    *_required(UtcDateTime, "started", "seen"),
    *_required(Boolean, "ended"),
    *_required(CleanJson, "phases", "left_out"),
    Index("ix_campaigns_cluster_started", "cluster", "started"),
)

# A metric of every part in each minute of a run, packed: `readings` has one row a time and one
# column a part.
minutes = Table(
    "minutes",
    metadata,
    _run_id(primary_key=True),
    Column("metric", String(64), primary_key=True),
    *_required(CleanJson, "parts"),
    *_required(JSON, "times_s"),
    *_required(LargeBinary, "readings"),
)

suspects = Table(
    "suspects",
    metadata,
    Column("id", Integer, primary_key=True),
    _run_id(nullable=False, index=True),
    *_required(String(16), "kind"),
    *_required(CleanText, "name"),
    *_required(Double, "confidence"),
    # Null in suspects of earlier versions
    Column("verdict", VerdictName),
    *_required(ReasonDocument, "reason"),
)

# A pin outlives the run it was taken from, so `run_id` is no foreign key here.
baselines = Table(
    "baselines",
    metadata,
    Column("id", Integer, primary_key=True),
    *_required(CleanText, "cluster", "series", "unit", "pinned_by", "note"),
    *_required(String(64), "series_key"),
    Column("low", Double),
    *_required(Double, "centre"),
    Column("high", Double),
    *_required(UtcDateTime, "pinned_at"),
    Column("run_id", CleanText),
    UniqueConstraint("cluster", "series_key", name="uq_baselines_cluster_series"),
)

# What is wrong, and who has heard of it. It outlives its runs: they are named in words, not by
# foreign keys.
incidents = Table(
    "incidents",
    metadata,
    Column("id", Integer, primary_key=True),
    *_required(CleanText, "cluster", "suite", "last_run"),
    *_required(String(16), "kind"),
    *_required(UtcDateTime, "opened", "seen"),
    Column("closed", UtcDateTime),
    *_required(VerdictName, "verdict", "worst"),
    *_required(ReasonDocument, "reason"),
    *_required(JSON, "suspects", "checks", "changes", "receipts"),
    *_required(Integer, "nights"),
    *_required(Boolean, "settled"),
    Index("ix_incidents_cluster_settled", "cluster", "settled"),
)
