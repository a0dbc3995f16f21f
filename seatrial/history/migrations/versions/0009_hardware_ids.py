"""Which machine each node was: digests of its serials."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("node_hardware", sa.Column("ids", sa.JSON))
