"""What the nodes of a run were made of."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "node_hardware",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id", ondelete="CASCADE"), nullable=False),
        sa.Column("gpu_model", sa.Text, nullable=False),
        sa.Column("gpu_clock_mhz", sa.Integer),
        sa.Column("cpu_model", sa.Text, nullable=False),
        sa.Column("driver", sa.Text, nullable=False),
        sa.Column("nodes", sa.JSON, nullable=False),
    )
    op.create_index("ix_node_hardware_run_id", "node_hardware", ["run_id"])
