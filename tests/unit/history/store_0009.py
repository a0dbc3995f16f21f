"""The tables of a store of revision 0009, as its migration made them."""

from typing import Any

import sqlalchemy as sa
from alembic import op


def make() -> None:
    _runs()
    _measurements()
    _nodes()
    _baselines()
    _incidents()


def _of_run(**options: Any) -> "sa.Column[Any]":
    return sa.Column(
        "run_id",
        sa.Text,
        sa.ForeignKey("runs.run_id", ondelete="CASCADE"),
        nullable=False,
        **options,
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("started", sa.DateTime, nullable=False),
        sa.Column("finished", sa.DateTime, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("code", sa.String(100)),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.JSON, nullable=False),
        sa.Column("out", sa.Text, nullable=False),
        sa.Column("setup", sa.JSON),
    )
    op.create_index("ix_runs_cluster_started", "runs", ["cluster", "started"])
    op.create_table(
        "checks",
        _of_run(primary_key=True),
        sa.Column("nth", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("code", sa.String(100)),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("found", sa.JSON, nullable=False),
    )
    op.create_table(
        "suspects",
        sa.Column("id", sa.Integer, primary_key=True),
        _of_run(index=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("code", sa.String(100)),
        sa.Column("evidence", sa.Text, nullable=False),
    )


def _measurements() -> None:
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("series_key", sa.String(64), nullable=False),
        sa.Column("check_name", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("series", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.String(16), nullable=False),
        sa.Column("subject_name", sa.Text, nullable=False),
        sa.Column("conditions", sa.JSON, nullable=False),
        sa.Column("better", sa.String(8)),
        sa.UniqueConstraint("series_key", "check_name", "unit", name="uq_series"),
    )
    numbers = [sa.Column("value", sa.Double), sa.Column("verdict", sa.String(16))]
    op.create_table("readings", *_place(), *numbers, sqlite_with_rowid=False)
    op.create_table(
        "samples", *_place(), sa.Column("samples", sa.JSON, nullable=False), sqlite_with_rowid=False
    )


def _place() -> list["sa.Column[Any]"]:
    """Return the key of a reading: run, series, and number within the series."""
    return [
        _of_run(primary_key=True),
        sa.Column(
            "series_id",
            sa.Integer,
            sa.ForeignKey("series.id"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("nth", sa.Integer, primary_key=True, autoincrement=False),
    ]


def _nodes() -> None:
    op.create_table(
        "node_hardware",
        sa.Column("id", sa.Integer, primary_key=True),
        _of_run(index=True),
        sa.Column("gpu_model", sa.Text, nullable=False),
        sa.Column("gpu_clock_mhz", sa.Integer),
        sa.Column("cpu_model", sa.Text, nullable=False),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("nodes", sa.JSON, nullable=False),
        sa.Column("ids", sa.JSON),
    )


def _baselines() -> None:
    op.create_table(
        "baselines",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("series", sa.Text, nullable=False),
        sa.Column("series_key", sa.String(64), nullable=False),
        sa.Column("low", sa.Double),
        sa.Column("centre", sa.Double, nullable=False),
        sa.Column("high", sa.Double),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("pinned_by", sa.Text, nullable=False),
        sa.Column("pinned_at", sa.DateTime, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
        sa.UniqueConstraint("cluster", "series_key", name="uq_baselines_cluster_series"),
    )


def _incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("opened", sa.DateTime, nullable=False),
        sa.Column("seen", sa.DateTime, nullable=False),
        sa.Column("closed", sa.DateTime),
        sa.Column("last_run", sa.Text, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("worst", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("suspects", sa.JSON, nullable=False),
        sa.Column("checks", sa.JSON, nullable=False),
        sa.Column("nights", sa.Integer, nullable=False),
        sa.Column("changes", sa.JSON, nullable=False),
        sa.Column("receipts", sa.JSON, nullable=False),
        sa.Column("settled", sa.Boolean, nullable=False),
    )
    op.create_index("ix_incidents_cluster_settled", "incidents", ["cluster", "settled"])
