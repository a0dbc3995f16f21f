"""Incidents as rows of their table.

The column `settled` follows from the incident, so that a query finds those that are open, and
`nights` counts its runs.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from seatrial.history.incident import Incident, Receipt
from seatrial.history.schema import incidents

_INCIDENT = incidents.c


def unsettled(connection: Connection, cluster: str, suite: str) -> list[Incident]:
    """Return the incidents of that suite that are not settled, in the order of their ids."""
    query = (
        select(incidents)
        .where(_INCIDENT.cluster == cluster, _INCIDENT.suite == suite)
        .where(_INCIDENT.settled.is_(False))
        .order_by(_INCIDENT.id)
    )
    rows = connection.execute(query)
    return [_incident(row) for row in rows]


def add_receipts(connection: Connection, key: int, receipts: Mapping[str, Receipt]) -> None:
    """Add receipts to the incident of that id, if there is one."""
    which = _INCIDENT.id == key
    query = select(incidents).where(which)
    row = connection.execute(query).first()
    if row is None:
        return
    incident = _with_receipts(_incident(row), receipts)
    record = _receipts_record(incident.receipts)
    changed = {"receipts": record, "settled": incident.settled}
    connection.execute(update(incidents).where(which), changed)


def _with_receipts(incident: Incident, receipts: Mapping[str, Receipt]) -> Incident:
    """Add the receipts, except for sinks to which another run has delivered more changes."""
    for sink, receipt in receipts.items():
        known = incident.receipts.get(sink, Receipt())
        if receipt.reported >= known.reported:
            incident = incident.with_receipt(sink, receipt)
    return incident


def write(connection: Connection, incident: Incident) -> Incident:
    """Insert the incident, or replace the one of its id; return it with its id."""
    record = incident_record(incident)
    if incident.id is not None:
        of_id = update(incidents).where(_INCIDENT.id == incident.id)
        connection.execute(of_id, record)
        return incident
    insertion = insert(incidents)
    inserted = connection.execute(insertion, record)
    primary_key = inserted.inserted_primary_key or (None,)
    (key,) = primary_key
    return replace(incident, id=key)


def incident_record(incident: Incident) -> dict[str, Any]:
    """Return the row of an incident, without its id."""
    record = asdict(incident)
    del record["id"]
    record["reason"] = incident.reason
    record["nights"] = record.pop("run_count")
    record["settled"] = incident.settled
    record["receipts"] = _receipts_record(incident.receipts)
    return record


def _receipts_record(receipts: Mapping[str, Receipt]) -> dict[str, Any]:
    """Return the receipts by sink, as the table has them."""
    return {
        sink: {"told": receipt.reported, "place": dict(receipt.place)}
        for sink, receipt in receipts.items()
    }


def _incident(row: Row[Any]) -> Incident:
    """Return the incident of a row."""
    values = dict(row._mapping)
    del values["settled"]
    values["run_count"] = values.pop("nights")
    for key in ("suspects", "checks", "changes"):
        values[key] = tuple(values[key])
    values["receipts"] = {
        sink: Receipt(saved["told"], saved["place"]) for sink, saved in row.receipts.items()
    }
    return Incident(**values)
