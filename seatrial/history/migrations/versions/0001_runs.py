"""Runs, what they measured and whom they blamed."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_runs()
    _create_measurements()
    _create_suspects()


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("started", sa.DateTime, nullable=False),
        sa.Column("finished", sa.DateTime, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.JSON, nullable=False),
        sa.Column("out", sa.Text, nullable=False),
    )
    op.create_index("ix_runs_cluster_started", "runs", ["cluster", "started"])


def _create_measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id", ondelete="CASCADE"), nullable=False),
        sa.Column("check_name", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.String(16), nullable=False),
        sa.Column("subject_name", sa.Text, nullable=False),
        sa.Column("conditions", sa.JSON, nullable=False),
        sa.Column("series", sa.Text, nullable=False),
        sa.Column("series_key", sa.String(64), nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("samples", sa.JSON, nullable=False),
        sa.Column("better", sa.String(8)),
        sa.Column("verdict", sa.String(16)),
    )
    op.create_index("ix_measurements_run_id", "measurements", ["run_id"])
    op.create_index("ix_measurements_series_key", "measurements", ["series_key"])


def _create_suspects() -> None:
    op.create_table(
        "suspects",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("evidence", sa.Text, nullable=False),
    )
    op.create_index("ix_suspects_run_id", "suspects", ["run_id"])
