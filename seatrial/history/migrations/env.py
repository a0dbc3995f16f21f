"""What alembic runs: the migrations on the connection, and in the transaction, that
seatrial.history.engine made.
"""

from alembic import context

from seatrial.history.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
