"""How much of a run was compared with a baseline; suspects of incidents without a kind that their
name says.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_id = sa.column("id", sa.Integer)
_suspects = sa.column("suspects", sa.JSON)
_incidents = sa.table("incidents", _id, _suspects)


def upgrade() -> None:
    op.add_column("runs", sa.Column("judged", sa.String(8)))
    connection = op.get_bind()
    query = sa.select(_id, _suspects).select_from(_incidents)
    for key, suspects in connection.execute(query).all():
        named = [_named(suspect) for suspect in suspects]
        change = _incidents.update().where(_id == key)
        connection.execute(change.values(suspects=named))


def _named(suspect: str) -> str:
    kind, _, name = suspect.partition(" ")
    if kind == "node" or kind in name:
        return name
    return suspect
