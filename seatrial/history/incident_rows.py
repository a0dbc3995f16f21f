"""Incidents as rows of the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from seatrial.history.incident import Incident, Receipt, RunOutcome, advance
from seatrial.history.migrate import lock
from seatrial.history.schema import incidents
from seatrial.model.verdict import Verdict

# Any number will do, as long as every process takes the same one.
_ADVISORY_LOCK = 7228466


def advance_incidents(
    connection: Connection, cluster: str, suite: str, night: RunOutcome, sinks: Iterable[str]
) -> list[Incident]:
    """Take the incidents of cluster and suite through that night; two runs that end at once do it in turn."""
    lock(connection, _ADVISORY_LOCK)
    after = advance(_unsettled(connection, cluster, suite), cluster, suite, night, sinks)
    return [_write(connection, incident) for incident in after]


def add_receipts(connection: Connection, key: int, receipts: Mapping[str, Receipt]) -> None:
    """Note `receipts` on the incident as it is now: telling takes minutes, and another run may have taken it on."""
    lock(connection, _ADVISORY_LOCK)
    row = connection.execute(select(incidents).where(incidents.c.id == key)).first()
    if row is None:
        return
    incident = _incident(row)
    for sink, receipt in receipts.items():
        if receipt.reported >= incident.receipts.get(sink, Receipt()).reported:  # the other run may have told it more
            incident = incident.with_receipt(sink, receipt)
    record = _record(incident)
    changed = {name: record[name] for name in ("receipts", "settled")}
    connection.execute(update(incidents).where(incidents.c.id == key), changed)


def _write(connection: Connection, incident: Incident) -> Incident:
    """Add the incident, or replace the one of its id; what is returned has an id."""
    if incident.id is not None:
        connection.execute(update(incidents).where(incidents.c.id == incident.id), _record(incident))
        return incident
    (key,) = connection.execute(insert(incidents), _record(incident)).inserted_primary_key or (None,)
    return replace(incident, id=key)


def _unsettled(connection: Connection, cluster: str, suite: str) -> Sequence[Incident]:
    query = select(incidents).where(
        incidents.c.cluster == cluster, incidents.c.suite == suite, incidents.c.settled.is_(False)
    )
    return [_incident(row) for row in connection.execute(query.order_by(incidents.c.id))]


def _record(incident: Incident) -> dict[str, Any]:
    columns = {name: value for name, value in asdict(incident).items() if name != "id"}
    verdicts = {"verdict": incident.verdict.value, "worst": incident.worst.value}
    receipts = {sink: {"told": r.reported, "place": dict(r.place)} for sink, r in incident.receipts.items()}
    return {**columns, **verdicts, "receipts": receipts, "settled": incident.settled}


def _incident(row: Row[Any]) -> Incident:
    fields = {key: value for key, value in row._mapping.items() if key != "settled"}
    lists = {key: tuple(fields[key]) for key in ("suspects", "checks", "changes")}
    receipts = {sink: Receipt(r["told"], r["place"]) for sink, r in fields["receipts"].items()}
    verdicts = {key: Verdict(fields[key]) for key in ("verdict", "worst")}
    return Incident(**{**fields, **lists, **verdicts, "receipts": receipts})
