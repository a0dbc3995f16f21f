"""Codes of reasons, beside their sentences."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for table in ("runs", "checks", "suspects"):
        op.add_column(table, sa.Column("code", sa.String(100)))
