"""See to it that every host has the image that its container starts from."""

import logging
from functools import partial

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.platforms.baremetal.answers import Answer
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import HostError, Hosts, some_reasons
from seatrial.platforms.baremetal.runtime import Container
from seatrial.platforms.openssh.failures import is_silent
from seatrial.text.printable import printable
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.launch")


def ensure_images(hosts: Hosts, settings: BaremetalPlatform, container: Container) -> None:
    """Pull it where it is not. Raises LaunchError where a host cannot get it, or has no such runtime.

    A host that does not answer is left to the launch, which finds that too.
    """
    looks = hosts.on_each(partial(_look, hosts, container))
    _check(looks)
    lacking = [host for host, answer in looks.items() if isinstance(answer, Answer) and answer.image_missing]
    if lacking:
        names = some_of(lacking)
        log.info("%d hosts lack %s, and pull it now: %s", len(lacking), printable(container.image), names)
        _check(hosts.on_each(partial(_pull, hosts, container, settings.pull_timeout_s), lacking))


def _look(hosts: Hosts, container: Container, host: str) -> Answer:
    request = {"verb": "image", "container": container.request()}
    answer = hosts.ask(host, request, 60, proxied=hosts.is_proxied(host))
    if answer.missing:
        raise HostError(Reason.of("baremetal-host-lacks", host=host, programs=printable(container.program)))
    if answer.image_missing and not container.name:
        raise HostError(image_missing(container, host, "there is no such file"))
    return answer


def _pull(hosts: Hosts, container: Container, timeout_s: float, host: str) -> Answer:
    request = {"verb": "pull", "container": container.request(), "timeout_s": timeout_s}
    answer = hosts.ask(host, request, timeout_s + 15, proxied=hosts.is_proxied(host))
    if answer.image_problem is not None:
        raise HostError(image_missing(container, host, answer.image_problem))
    return answer


def image_missing(container: Container, host: str, problem: str) -> Reason:
    """That a host does not have it, and why."""
    words = printable(problem)[:500]
    return Reason.of("baremetal-image-missing", host=host, image=printable(container.image), problem=words)


def _check(answers: dict[str, Answer | SeatrialError]) -> None:
    problems = [
        answer.reason
        for answer in answers.values()
        if isinstance(answer, SeatrialError) and not isinstance(answer, MissingError) and not is_silent(answer.reason)
    ]
    if problems:
        raise LaunchError(some_reasons(problems))
