"""Follow objects of several kinds at once: every change in one queue, and watches that break are begun anew."""

import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from seatrial.model.errors import MissingError, SeatrialError
from seatrial.platforms.kubernetes.api import LIMIT, TIMEOUT_S, Api, plain
from seatrial.platforms.kubernetes.launchers import Kind
from seatrial.platforms.kubernetes.plan import Object
from seatrial.platforms.kubernetes.refusals import short

log = logging.getLogger("seatrial.kubernetes")

_WATCH_S = 300  # the API server ends watches by itself; they are begun anew
_PAUSE_S = 1.0  # before a watch that broke is begun anew


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED; or LISTED, where it begins (again), with all in `items`."""

    kind: str
    change: str
    object: Object


class Watches:
    """Several watches into one queue. Use as a context; watches that break are begun anew until the end."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._changes: queue.SimpleQueue[WatchEvent | SeatrialError] = queue.SimpleQueue()
        self._watchers: list[Any] = []
        self._over = threading.Event()

    def __enter__(self) -> "Watches":
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for watcher in list(self._watchers):  # their threads take them off as they end
            watcher.stop()

    def add(self, kind: Kind, **selectors: str) -> None:
        """Watch the objects of a kind that `label_selector` or `field_selector` finds."""
        resource = self._api.resource(kind)
        threading.Thread(target=self._follow, args=(kind.kind, resource, selectors), daemon=True).start()

    def next(self, timeout_s: float) -> WatchEvent | None:
        """The next change; None when there is none in time. Raises MissingError where something may not be watched."""
        try:
            change = self._changes.get(timeout=max(timeout_s, 0.001))
        except queue.Empty:
            return None
        if isinstance(change, SeatrialError):
            raise change
        return change

    def _follow(self, kind: str, resource: Any, selectors: dict[str, str]) -> None:
        from kubernetes.watch import Watch

        scope = {"namespace": self._api.namespace, **selectors}
        while not self._over.is_set():
            watcher = Watch()
            self._watchers.append(watcher)
            try:
                with self._api.explained(f"watch {kind}"):
                    listed = plain(resource.get(**scope, **LIMIT))
                    self._changes.put(WatchEvent(kind, "LISTED", listed))
                    for event in watcher.stream(
                        resource.get,
                        **scope,
                        serialize=False,
                        resource_version=listed["metadata"]["resourceVersion"],
                        timeout_seconds=_WATCH_S,
                        _request_timeout=(TIMEOUT_S, _WATCH_S + TIMEOUT_S),
                    ):
                        self._changes.put(WatchEvent(kind, event["type"], event["raw_object"]))
                        if self._over.is_set():
                            return
            except MissingError as error:  # it will be no other the next time
                self._changes.put(error)
                return
            except Exception as error:  # the API server restarts, a proxy cuts connections, a version is too old
                if not self._over.is_set():
                    log.debug("the watch of %s broke: %s", kind, short(error))
                    time.sleep(_PAUSE_S)
            finally:
                self._watchers.remove(watcher)
