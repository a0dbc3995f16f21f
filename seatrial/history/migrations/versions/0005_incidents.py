"""Incidents: what is wrong with a cluster, and who has heard of it."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
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
