"""Store reasons as JSON documents, as in run.json, and the verdict of each suspect."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

# The code of a reason, by table
_CODES = {
    "runs": "code",
    "checks": "code",
    "suspects": "code",
    "incidents": "NULL",
}


def upgrade() -> None:
    with op.batch_alter_table("suspects") as suspects:
        suspects.add_column(sa.Column("verdict", sa.String(16)))
        suspects.alter_column("evidence", new_column_name="reason")
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    document = "json_object" if is_sqlite else "json_build_object"
    for name, code in _CODES.items():
        op.execute(f"UPDATE {name} SET reason = {document}('code', {code}, 'reason', reason)")
        with op.batch_alter_table(name) as table:
            table.alter_column("reason", type_=sa.JSON, postgresql_using="reason::json")
            if code == "code":
                table.drop_column(code)
