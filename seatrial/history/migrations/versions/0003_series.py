"""What is measured is described once, in `series`; `readings` are its numbers, kept together run by run."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    _create_series()
    _create_readings()
    _create_samples()
    _move()
    op.drop_table("measurements")


def _create_series() -> None:
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("series_key", sa.String(64), nullable=False),
        sa.Column("check_name", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("series", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.String(16), nullable=False),
        sa.Column("subject_name", sa.Text, nullable=False),
        sa.Column("conditions", sa.JSON, nullable=False),
        sa.Column("better", sa.String(8)),
        sa.UniqueConstraint("series_key", "check_name", "unit", name="uq_series"),
    )


def _place() -> list[sa.Column]:
    """Which reading: the run, the series, and which one of several of the same series."""
    return [
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("series_id", sa.Integer, sa.ForeignKey("series.id"), primary_key=True, autoincrement=False),
        sa.Column("nth", sa.Integer, primary_key=True, autoincrement=False),
    ]


def _create_readings() -> None:
    columns = [*_place(), sa.Column("value", sa.Double), sa.Column("verdict", sa.String(16))]
    op.create_table("readings", *columns, sqlite_with_rowid=False)


def _create_samples() -> None:
    op.create_table("samples", *_place(), sa.Column("samples", sa.JSON, nullable=False), sqlite_with_rowid=False)


def _move() -> None:
    described = "series_key, check_name, unit, series, metric, subject_kind, subject_name, conditions, better"
    op.execute(
        f"INSERT INTO series ({described}) SELECT {described} FROM measurements WHERE id IN"
        " (SELECT MIN(id) FROM measurements GROUP BY series_key, check_name, unit)"
    )
    numbered = (
        "SELECT m.run_id, s.id AS series_id, m.value, m.verdict, m.samples,"
        " ROW_NUMBER() OVER (PARTITION BY m.run_id, s.id ORDER BY m.id) - 1 AS nth FROM measurements m JOIN series s"
        " ON s.series_key = m.series_key AND s.check_name = m.check_name AND s.unit = m.unit"
    )
    op.execute(
        "INSERT INTO readings (run_id, series_id, nth, value, verdict)"
        f" SELECT run_id, series_id, nth, value, verdict FROM ({numbered}) AS numbered"
    )
    op.execute(
        "INSERT INTO samples (run_id, series_id, nth, samples) SELECT run_id, series_id, nth, samples"
        f" FROM ({numbered}) AS numbered WHERE CAST(samples AS TEXT) <> '[]'"
    )
