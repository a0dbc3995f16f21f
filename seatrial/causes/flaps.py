"""When NICs' ports went down and came up, as NCCL reports asynchronous events. Pure.

Source: ncclIbAsyncThreadMain in NCCL's src/transport/net_ib.cc, 2.18 to 2.28.
"""

import re
from datetime import datetime

_MAX_PORTS, _MAX_EVENTS, _SHOWN = 1024, 64, 4
_EVENT = re.compile(
    r"(?P<host>[\w.-]{1,253}):\d{1,9}:\d{1,9} \[-?\d{1,9}\] .{0,120}?NET/IB ?: (?P<port>[\w.:-]{1,40}) "
    r"Got (?:non-fatal )?async (?:error )?event ?: (?:\S{1,40} )?port (?P<state>error|active)"
)
_TIME = re.compile(r"(?<!\d)(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?!\d)")


class Flaps:
    """Take the lines of a log; memory is bounded by the number of ports and of their events."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str], list[tuple[str, datetime]]] = {}

    def take(self, text: str) -> None:
        """Take one line; any but those of ports with a time are passed over."""
        event = _EVENT.search(text) if "NET/IB" in text and "async" in text else None
        time = _TIME.search(text, 0, event.start()) if event else None
        if event is None or time is None:
            return
        key = event["host"], event["port"]
        events = self._events.setdefault(key, []) if len(self._events) < _MAX_PORTS else self._events.get(key, [])
        if len(events) < _MAX_EVENTS:
            events.append((event["state"], datetime.fromisoformat(f"{time[1] or '1970-01-01'}T{time[2]}")))

    def words(self, host: str | None, port: str) -> str:
        """The times of a port that went down more than once or came up again; empty without those."""
        events = self._events.get((host or "", port), [])
        if len(events) < 2:
            return ""
        said: list[str] = []
        before: datetime | None = None
        for state, time in events[:_SHOWN]:
            seconds = (time - before).total_seconds() if before else -1
            after = f"{seconds:.0f} s later" if state == "active" and 0 <= seconds < 3600 else f"{time:%H:%M:%S}"
            said.append(f"{'up' if state == 'active' else 'down'} {after}")
            before = time
        more = f" and {len(events) - _SHOWN} more" if len(events) > _SHOWN else ""
        return ", ".join(said) + more
