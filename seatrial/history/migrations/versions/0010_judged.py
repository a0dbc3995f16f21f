"""How much of a run was compared with a baseline."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("runs", sa.Column("judged", sa.String(8)))
