"""Nodes as network namespaces on this machine, each with its own host name, hosts file and real sshd."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "local-network-failed": Explanation(
        "the local network did not come up: {problem}",
        "The local platform could not create its network namespaces or its bridge.",
        "Read the kernel's message at the end of the line, then run `seatrial doctor`.",
    ),
    "local-program-missing": Explanation(
        "{program} is missing: install {package}",
        "The local platform needs a program that this machine does not have.",
        "Install the package that the line names. `make run` does it where it may.",
    ),
    "local-namespaces-forbidden": Explanation(
        "this machine cannot create network namespaces ({problem}): {remedy}",
        "The kernel or the container does not let this user create network namespaces.",
        "Follow the end of the line: run as root, set the `sysctl`, or give the container the capabilities.",
    ),
    "local-machine-too-small": Explanation(
        "this machine cannot carry {nodes} local nodes: {needed} {resource} are needed, {available} are free: {remedy}",
        "All local nodes share one machine, and it has too little for so many. No node is at fault.",
        "Run the command at the end of the line as root, or use fewer nodes.",
    ),
    "local-fault-failed": Explanation(
        "a fault did not begin after its check: {fault}",
        "The commands of a fault with `after` failed, or their node is down.",
        "Read `logs/nodes/NODE.log`.",
    ),
    "local-sshd-silent": Explanation(
        "no node's sshd answers on port {port}; {node} says: {problem}",
        "sshd does not start in the local nodes.",
        "Read `logs/nodes/NODE.log`.",
    ),
}

register(REASONS)
