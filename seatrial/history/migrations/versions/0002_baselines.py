"""Baselines that a person approved."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
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
