"""When NICs' ports went down and came up, as NCCL reports asynchronous events. Pure.

Source: ncclIbAsyncThreadMain in NCCL's src/transport/net_ib.cc, 2.18 to 2.28.
"""

from datetime import datetime

from seatrial.text.lazy_pattern import lazy

_MAX_PORTS = 1024
_MAX_EVENTS = 64
_SHOWN = 4
_EVENT = lazy(
    r"(?P<host>[\w.-]{1,253}):\d{1,9}:\d{1,9} \[-?\d{1,9}\] .{0,120}?NET/IB ?: "
    r"(?P<port>[\w.:-]{1,40}) "
    r"Got (?:non-fatal )?async (?:error )?event ?: (?:\S{1,40} )?port (?P<state>error|active)"
)
_TIME = lazy(r"(?<!\d)(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?!\d)")


class Flaps:
    """Take the lines of a log; memory is bounded by the number of ports and of their events."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str], list[tuple[str, datetime]]] = {}

    def take(self, text: str) -> None:
        """Take one line; only those of ports with a time count."""
        if "NET/IB" not in text or "async" not in text:
            return
        event = _EVENT.search(text)
        if event is None:
            return
        time = _TIME.search(text, 0, event.start())
        key = event["host"], event["port"]
        if time is None or (key not in self._events and len(self._events) >= _MAX_PORTS):
            return
        events = self._events.setdefault(key, [])
        if len(events) < _MAX_EVENTS:
            day = time[1] or "1970-01-01"
            events.append((event["state"], datetime.fromisoformat(f"{day}T{time[2]}")))

    def words(self, host: str | None, port: str) -> str:
        """Return the times of a port that went down more than once or came up again; empty without
        those.
        """
        events = self._events.get((host or "", port), [])
        if len(events) < 2:
            return ""
        shown = []
        before: datetime | None = None
        for state, time in events[:_SHOWN]:
            shown.append(_words_of(state, time, before))
            before = time
        if len(events) > _SHOWN:
            shown.append(f"and {len(events) - _SHOWN} more")
        return ", ".join(shown)


def _words_of(state: str, time: datetime, before: datetime | None) -> str:
    """Return the event with the time of day; for a port that came up within an hour of `before`,
    with the seconds that it was down.
    """
    if state == "error":
        return f"down {time:%H:%M:%S}"
    seconds = (time - before).total_seconds() if before else -1.0
    if 0 <= seconds < 3600:
        return f"up {seconds:.0f} s later"
    return f"up {time:%H:%M:%S}"
