"""Follow what was submitted until every node answers: by watches, with a word whenever something changes."""

import logging
import time

from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason, caused, extended
from seatrial.platforms.kubernetes import queue, waiting
from seatrial.platforms.kubernetes.api import EVENT, POD, Api
from seatrial.platforms.kubernetes.launchers import Launcher, failed
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object, selector
from seatrial.platforms.kubernetes.pod import NODE, ROLE
from seatrial.platforms.kubernetes.watches import Watches, WatchEvent

log = logging.getLogger("seatrial.launch")

_ADMISSION_S = 30.0  # pods that a quota or a policy keeps out are tried again; after so long it is no accident
_LOOK_S = 0.2  # between two looks at all pods, while changes come in


class BringUp:
    """One run's pods on their way up. `parent` is the launcher's object as the API server made it."""

    def __init__(self, api: Api, plan: KubernetesPlan, launcher: Launcher, parent: Object) -> None:
        self._api, self._plan, self._launcher, self._parent = api, plan, launcher, parent
        self._seen = waiting.RunState()
        self._begun = time.monotonic()
        self._look_at = self._begun + _LOOK_S
        self._placed: float | None = None  # when every pod had its node
        self._troubled: dict[str, float] = {}  # as `waiting.troubled` gives it
        self._last_logged = ""

    def wait(self) -> list[Object]:
        """The pods, once every sshd answers. Raises LaunchError when that will never be, or time is up."""
        with Watches(self._api) as watches:
            self._watch(watches)
            while len(waiting.ready(self._seen.pods.values())) < self._plan.nodes:
                self._take_what_comes(watches)
                self._give_up_if_hopeless()
                self._say_and_check_time()
        return waiting.ready(self._seen.pods.values())

    def _watch(self, watches: Watches) -> None:
        watches.add(POD, label_selector=f"{selector(self._plan.run.run_id)},{ROLE}={NODE}")
        watches.add(self._launcher.kind, field_selector=f"metadata.name={self._plan.name}")
        watches.add(EVENT, field_selector="type=Warning")  # a JobSet's Job, whose event it is, has a longer name
        if self._plan.settings.queue:
            watches.add(queue.WORKLOAD)  # all of the namespace: no selector finds an owner

    def _take_what_comes(self, watches: Watches) -> None:
        """The next change, and all others until another look is due: each pod changes often, and a look is at all."""
        change = watches.next(1.0)
        while change:
            self._take(change)
            left_s = self._look_at - time.monotonic()
            change = watches.next(left_s) if left_s > 0 else None
        self._look_at = time.monotonic() + _LOOK_S

    def _take(self, change: WatchEvent) -> None:
        match change.kind, change.change:
            case "Pod", "LISTED":
                self._seen.take_pods(change.object["items"])
            case _, "LISTED":
                for item in change.object["items"]:
                    self._take(WatchEvent(change.kind, "ADDED", item))
            case "Pod", _:
                self._seen.take_pod(change.change, change.object)
            case "Event", _:
                if change.object["involvedObject"]["name"].startswith(self._plan.name):
                    self._seen.take_event(change.object, time.monotonic())
            case "Workload", _:
                if queue.is_of(change.object, self._parent["metadata"]["uid"]):
                    self._seen.take_workload(change.change, change.object)
            case _:
                self._seen.take_parent(change.change, change.object)

    def _give_up_if_hopeless(self) -> None:
        pods, now = self._seen.pods.values(), time.monotonic()
        self._troubled = waiting.troubled(pods, self._troubled, now)
        if problem := waiting.problem(pods, self._troubled, now):
            words = self._api.last_words(problem.pod)
            raise LaunchError(extended(problem.reason, f"; its last words: {words}" if words else ""))
        parent, queued = self._seen.parent, self._queued()
        if parent and (why := failed(parent)):
            raise LaunchError(why)
        if self._seen.deleted:
            raise LaunchError(Reason.of("object-deleted", kind=self._launcher.kind.kind, plan=self._plan.name))
        complaint = self._seen.complaint
        if complaint and not pods and now - complaint.since > _ADMISSION_S:
            raise LaunchError(complaint.words)
        if queued and queued.hopeless:
            raise LaunchError(queued.reason)

    def _queued(self) -> queue.Queued | None:
        """What Kueue says, where there is a queue."""
        if not self._plan.settings.queue:
            return None
        if self._seen.workload:
            return queue.waits_for(self._seen.workload)
        if time.monotonic() - self._begun > queue.UNMANAGED_S and not (self._seen.managed or self._seen.pods):
            return queue.unmanaged(self._launcher.kind.kind, self._plan.settings.priority)
        return queue.Queued(Reason.of("queue-not-looked-at", what="queued"))

    def _say_and_check_time(self) -> None:
        pods, settings = self._seen.pods.values(), self._plan.settings
        queued = self._queued()
        story = waiting.story(pods, self._plan.nodes, queued, self._seen.unmounted)
        if self._seen.complaint and not pods:
            story = self._seen.complaint.words
        if story != self._last_logged:
            self._last_logged = story
            log.info("%s", story)
        now = time.monotonic()
        if queued:  # also where Kueue had admitted it and has taken the nodes away again
            self._placed = None
        elif self._placed is None and len(waiting.placed(pods)) >= self._plan.nodes:
            self._placed = now
        since, limit_s, setting = self._begun, settings.queue_timeout_s, "queue_timeout_s"
        if self._placed is not None:
            since, limit_s, setting = self._placed, settings.start_timeout_s, "start_timeout_s"
        if now - since > limit_s:
            reason = Reason.of("launch-timeout", limit_s=f"{limit_s:g}", setting=setting, story=story)
            raise LaunchError(caused(reason, story))
