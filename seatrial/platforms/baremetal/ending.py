"""End a run on its hosts, and remember those that could not be reached until their own deadline is over."""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms import state as states
from seatrial.platforms.baremetal.bringup import Started, container_name, run_folder
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import Answer, HostAddress, Hosts, on_hosts
from seatrial.platforms.openssh import was_never_in
from seatrial.text.words import some_of

_STOP_TIMEOUT_S = 25.0
_NEVER = 1e11


def deadline_of(folder: Path) -> float:
    """In seconds of the epoch, by this clock: when the hosts have ended the run by themselves at the latest."""
    try:
        deadline = json.loads(states.read_file(folder, "deadline.json"))
    except (InputError, ValueError):
        return 0.0  # nothing was started
    return float(deadline) if isinstance(deadline, int | float) and 0 <= deadline < _NEVER else 0.0


@contextmanager
def all_untouched(folder: Path, hosts: Collection[str]) -> Iterator[None]:
    """What is done in here leaves nothing on any host; if it fails, teardown has nothing to ask them."""
    states.write_private(folder / "untouched.json", json.dumps(list(hosts)))
    yield
    (folder / "untouched.json").unlink()


def remember_untouched(folder: Path, started: Started) -> None:
    """The hosts that no login succeeded on have nothing to clear."""
    untouched = [
        host for host, answer in started.items() if isinstance(answer, SeatrialError) and was_never_in(answer.reason)
    ]
    states.write_private(folder / "untouched.json", json.dumps(untouched))


def _touched(folder: Path, hosts: tuple[str, ...]) -> list[str]:
    """All that may hold something of the run: of a run that was cut off while it started, every one."""
    try:
        untouched = json.loads(states.read_file(folder, "untouched.json"))
    except (InputError, ValueError):
        return list(hosts)
    return [host for host in hosts if host not in untouched]


def stop_run(run_id: str, folder: Path, settings: BaremetalPlatform, hosts_type: type[Hosts]) -> None:
    """Raises SeatrialError where hosts could not be cleared and their deadline is yet to come; `reap` tries again."""
    settings = _remembered(folder, settings)
    container = {"program": settings.runtime, "name": container_name(settings, run_id)}
    request = {"verb": "stop", "run_id": run_id, "folder": run_folder(settings, run_id), "container": container}
    hosts = hosts_type(settings, folder / "ssh_config")
    touched = _touched(folder, settings.hosts) if (folder / "ssh_config").exists() else []
    answers = on_hosts(touched, partial(_stop, hosts, request))
    remaining = [problem for answer in answers.values() if (problem := _problem(answer))]
    deadline = deadline_of(folder)
    if not remaining or time.time() > deadline:
        states.remove_folder(folder)
        return
    (folder / states.KEY_FILE).unlink(missing_ok=True)
    until = f"{datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M} UTC"
    raise SeatrialError(
        Reason.of(
            "baremetal-hosts-remain",
            count=len(remaining),
            hosts=len(settings.hosts),
            problems=some_of(remaining),
            until=until,
        )
    )


def _remembered(folder: Path, settings: BaremetalPlatform) -> BaremetalPlatform:
    """The cluster file may have changed since."""
    try:
        platform = states.recall(folder).platform
    except InputError:
        return settings
    return platform if isinstance(platform, BaremetalPlatform) else settings


def _stop(hosts: Hosts, request: Mapping[str, object], host: str) -> Answer:
    return hosts.ask(host, request, _STOP_TIMEOUT_S, proxied=hosts.is_proxied(host))


def _problem(answer: Answer | SeatrialError) -> str | None:
    if isinstance(answer, SeatrialError):
        return answer.reason
    if answer.remaining:
        return f"processes {some_of(map(str, answer.remaining))} do not end"
    if answer.container_left:
        return "the container of the run cannot be removed"
    return "the folder of the run is still there" if answer.folder_left else None


def blameless_reason(hosts: Hosts, folder: Path, settings: BaremetalPlatform, node: HostAddress) -> str | None:
    """Its deadline is over, or the jump host before it is gone; None where the node itself is silent."""
    if time.time() > deadline_of(folder) - settings.start_timeout_s:
        return Reason.of("baremetal-deadline", deadline_s=settings.deadline_s)
    jump = hosts.first_jump(node.name) if node.proxied else None
    problem = hosts.why_silent(jump) if jump else None
    return Reason.of("baremetal-jump-silent", jump=jump, problem=problem) if problem else None
