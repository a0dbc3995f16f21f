"""`python -m tests.e2e.kubernetes build|up|down|status`: a cluster for people, which stays until it
is taken down.
"""

import sys
from collections.abc import Callable
from functools import partial

from tests.e2e.kubernetes import addons, build, cluster, images, store
from tests.e2e.kubernetes.machine import Machine


def main(arguments: list[str]) -> int:
    """Its exit status: 0, 2 when asked for something else, 3 when there is no cluster or can be
    none.
    """
    commands = {"build": _build, "up": _up, "down": _down, "status": _status}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(f"usage: python -m tests.e2e.kubernetes {'|'.join(commands)}", file=sys.stderr)
        return 2
    return commands[arguments[0]]()


def _build() -> int:
    """Everything that tests would wait for, once; what cannot be built does not keep the rest from
    it.
    """
    steps: dict[str, Callable[[], object]] = {
        "Kubernetes": build.programs,
        **{addon.name: partial(addons.folder, addon) for addon in addons.ALL},
        "images/cpu": lambda: store.prepared(build.programs() / "pause"),
        "deployments/server": images.build_site,
    }
    return _exit_status_of("what comes from Debian", build.require_system) or max(
        [_exit_status_of(*step) for step in steps.items()]
    )


def _exit_status_of(step_name: str, step: Callable[[], object]) -> int:
    print(f"{step_name} ...", file=sys.stderr, flush=True)
    try:
        step()
    except cluster.Unavailable as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def _up() -> int:
    machine = Machine()
    try:
        with build.exclusive(machine.lock):
            running = cluster.running(machine) or cluster.start(machine, keep=True)
    except cluster.Unavailable as error:
        print(error, file=sys.stderr)
        return 3
    print(f"export KUBECONFIG={running.kubeconfig}")
    return 0


def _down() -> int:
    Machine().stop()  # without the lock: whoever holds it loses the cluster, as was asked for
    return 0


def _status() -> int:
    running = cluster.running(Machine())
    if not running:
        print("no cluster is up", file=sys.stderr)
        return 3
    print(running.kubectl("get", "nodes"), end="")
    print(f"export KUBECONFIG={running.kubeconfig}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
