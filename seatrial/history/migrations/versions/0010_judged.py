"""How much of a run was compared with a baseline; suspects of incidents without a kind that their
name says.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_incidents = sa.table("incidents", sa.column("id", sa.Integer), sa.column("suspects", sa.JSON))


def upgrade() -> None:
    op.add_column("runs", sa.Column("judged", sa.String(8)))
    connection = op.get_bind()
    query = sa.select(_incidents.c.id, _incidents.c.suspects)
    for key, suspects in connection.execute(query).all():
        named = [_named(suspect) for suspect in suspects]
        which = _incidents.c.id == key
        connection.execute(_incidents.update().where(which).values(suspects=named))


def _named(suspect: str) -> str:
    kind, _, name = suspect.partition(" ")
    return name if kind == "node" or kind in name else suspect
