"""What each run found of each of its nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "node_tests",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("ended", sa.DateTime, nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("code", sa.String(100)),
        sa.Column("partner", sa.Text),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("held_s", sa.Double, nullable=False),
    )
    op.create_index("ix_node_tests_cluster_ended", "node_tests", ["cluster", "ended"])
