"""Watch the submitted objects until every node answers, and log each change."""

import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason, caused, extended, uncoded
from seatrial.platforms.kubernetes import waiting
from seatrial.platforms.kubernetes.api import EVENT, LIMIT, POD, TIMEOUT_S, Api, plain, short
from seatrial.platforms.kubernetes.kueue import (
    UNMANAGED_S,
    WORKLOAD,
    Queued,
    is_of,
    unmanaged,
    waits_for,
)
from seatrial.platforms.kubernetes.launchers import Launcher, failed
from seatrial.platforms.kubernetes.plan import Kind, KubernetesPlan, Object, selector
from seatrial.platforms.kubernetes.pod import NODE_ROLE, ROLE

log = logging.getLogger("seatrial.kubernetes")

_WATCH_S = 300  # duration of a watch, after which it is restarted
_PAUSE_S = 1.0  # before a broken watch is restarted
# Controllers retry pods that a quota or policy rejects; after this time the rejection counts as
# permanent
_ADMISSION_S = 30.0
_LOOK_S = 0.2  # between two checks of all pods while changes arrive


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch: ADDED, MODIFIED, DELETED; or LISTED at each start, with all objects in
    `items`.
    """

    kind: str
    change: str
    object: Object


class Watches:
    """A context manager for several watches with one queue; broken watches are restarted until it
    exits.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._changes: queue.SimpleQueue[WatchEvent | SeatrialError] = queue.SimpleQueue()
        self._watchers: list[Any] = []
        self._over = threading.Event()

    def __enter__(self) -> "Watches":
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        # Copied, since threads remove their watchers as they end
        for watcher in list(self._watchers):
            watcher.stop()

    def add(self, kind: Kind, **selectors: str) -> None:
        """Watch the objects of a kind that `label_selector` or `field_selector` finds."""
        resource = self._api.resource(kind)
        threading.Thread(
            target=self._follow, args=(kind.kind, resource, selectors), daemon=True
        ).start()

    def next(self, timeout_s: float) -> WatchEvent | None:
        """Return the next event; None on a timeout.

        Raises MissingError if something may not be watched.
        """
        try:
            change = self._changes.get(timeout=max(timeout_s, 0.001))
        except queue.Empty:
            return None
        if isinstance(change, SeatrialError):
            raise change
        return change

    def _follow(self, kind: str, resource: Any, selectors: dict[str, str]) -> None:
        """Queue the events of a kind until the context exits; runs in a separate thread.

        Each start lists all objects, since events between two watches are lost.
        """
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
            except MissingError as error:  # retrying would not change it
                self._changes.put(error)
                return
            except Exception as error:
                # The API server restarts, a proxy cuts connections, a version is too old
                if not self._over.is_set():
                    log.debug("the watch of %s broke: %s", kind, short(error))
                    time.sleep(_PAUSE_S)
            finally:
                self._watchers.remove(watcher)


class BringUp:
    """The pods of a run until they are ready.

    `parent` is the launcher's object as the API server made it.
    """

    def __init__(self, api: Api, plan: KubernetesPlan, launcher: Launcher, parent: Object) -> None:
        self._api = api
        self._plan = plan
        self._launcher = launcher
        self._parent = parent
        self._seen = waiting.SeenObjects()
        self._begun = time.monotonic()
        self._look_at = self._begun + _LOOK_S
        self._placed: float | None = None  # time at which every pod had a node
        self._troubled: dict[str, float] = {}  # as `waiting.problem_starts` gives it
        self._logged = Reason()

    def wait(self) -> list[Object]:
        """Wait until every sshd answers, and return the pods.

        Raises LaunchError if that will not happen, or time is up.
        """
        of_run = selector(self._plan.run.run_id)
        with Watches(self._api) as watches:
            watches.add(POD, label_selector=f"{of_run},{ROLE}={NODE_ROLE}")
            watches.add(self._launcher.kind, field_selector=f"metadata.name={self._plan.name}")
            # Not by name: events may be of a JobSet's Job, whose name is longer
            watches.add(EVENT, field_selector="type=Warning")
            if self._plan.settings.queue:
                watches.add(WORKLOAD)  # all of the namespace, as no selector matches an owner
            while len(waiting.ready(self._seen.pods.values())) < self._plan.node_count:
                self._take_changes(watches)
                self._raise_if_hopeless()
                self._log_and_check_time()
        return waiting.ready(self._seen.pods.values())

    def _take_changes(self, watches: Watches) -> None:
        """Process the next event, and all others until the next check; each check examines all
        pods.
        """
        change = watches.next(1.0)
        while change:
            self._take(change)
            left_s = self._look_at - time.monotonic()
            change = watches.next(left_s) if left_s > 0 else None
        self._look_at = time.monotonic() + _LOOK_S

    def _take(self, change: WatchEvent) -> None:
        """Process one event; a list of pods replaces all pods, other lists count as one event per
        object.
        """
        seen = change.object
        match change.kind, change.change:
            case "Pod", "LISTED":
                self._seen.take_pods(seen["items"])
            case _, "LISTED":
                for item in seen["items"]:
                    self._take(WatchEvent(change.kind, "ADDED", item))
            case "Pod", _:
                self._seen.take_pod(change.change, seen)
            case "Event", _:
                if seen["involvedObject"]["name"].startswith(self._plan.name):
                    self._seen.take_event(seen, time.monotonic())
            case "Workload", _:
                if is_of(seen, self._parent["metadata"]["uid"]):
                    self._seen.take_workload(change.change, seen)
            case _:
                self._seen.take_parent(change.change, seen)

    def _raise_if_hopeless(self) -> None:
        """Raise LaunchError if the pods will never be ready: a problem of a pod or of the object
        that makes them, its deletion, or a queue that never admits it.
        """
        pods = self._seen.pods.values()
        now = time.monotonic()
        self._troubled = waiting.problem_starts(pods, self._troubled, now)
        if problem := waiting.problem(pods, self._troubled, now):
            pod, reason = problem
            last_words = ""
            if log_end := self._api.log_end(pod):
                last_words = f"; its last words: {log_end}"
            raise LaunchError(extended(reason, last_words))
        parent = self._seen.parent
        queued = self._queued()
        if parent and (why := failed(parent)):
            raise LaunchError(why)
        if self._seen.deleted:
            raise LaunchError.of(
                "object-deleted", kind=self._launcher.kind.kind, plan=self._plan.name
            )
        complaint = self._seen.complaint
        if complaint and not pods and now - complaint.since > _ADMISSION_S:
            raise LaunchError(complaint.text)
        if queued and queued.hopeless:
            raise LaunchError(queued.reason)

    def _queued(self) -> Queued | None:
        """Return the state of the Workload in Kueue; None without a queue."""
        if not self._plan.settings.queue:
            return None
        if self._seen.workload:
            return waits_for(self._seen.workload)
        is_late = time.monotonic() - self._begun > UNMANAGED_S
        if is_late and not (self._seen.managed or self._seen.pods):
            return unmanaged(self._launcher.kind.kind, self._plan.settings.priority)
        return Queued(Reason.of("queue-not-looked-at", what="queued"))

    def _log_and_check_time(self) -> None:
        """Log the progress where it has changed.

        Raises LaunchError when time is up: in the queue until every pod has a node, then for the
        start.
        """
        pods = self._seen.pods.values()
        settings = self._plan.settings
        queued = self._queued()
        progress = waiting.describe_progress(
            pods, self._plan.node_count, queued, self._seen.unmounted
        )
        if self._seen.complaint and not pods:
            progress = uncoded(self._seen.complaint.text)
        if progress != self._logged:
            self._logged = progress
            log.info("%s", progress)
        now = time.monotonic()
        if queued:  # also if Kueue admitted the run and then evicted it
            self._placed = None
        elif self._placed is None and len(waiting.placed(pods)) >= self._plan.node_count:
            self._placed = now
        since = self._begun
        limit_s = settings.queue_timeout_s
        setting = "queue_timeout_s"
        if self._placed is not None:
            since = self._placed
            limit_s = settings.start_timeout_s
            setting = "start_timeout_s"
        if now - since > limit_s:
            reason = Reason.of(
                "launch-timeout", limit_s=f"{limit_s:g}", setting=setting, story=progress
            )
            raise LaunchError(caused(reason, progress))
