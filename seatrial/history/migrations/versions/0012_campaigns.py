"""Campaigns, and what devices reported in each minute of a run."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "campaigns",
        sa.Column("campaign_id", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("plan", sa.String(64), nullable=False),
        sa.Column("goal_s", sa.Double, nullable=False),
        sa.Column("started", sa.DateTime, nullable=False),
        sa.Column("seen", sa.DateTime, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("phases", sa.JSON, nullable=False),
        sa.Column("left_out", sa.JSON, nullable=False),
    )
    op.create_index("ix_campaigns_cluster_started", "campaigns", ["cluster", "started"])
    op.create_table(
        "minutes",
        sa.Column(
            "run_id", sa.Text, sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("metric", sa.String(64), primary_key=True),
        sa.Column("parts", sa.JSON, nullable=False),
        sa.Column("times_s", sa.JSON, nullable=False),
        sa.Column("readings", sa.LargeBinary, nullable=False),
    )
