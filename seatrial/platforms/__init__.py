"""The contract of platforms: everything that differs between them; the rest is shared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Protocol

from seatrial.config import PLATFORMS
from seatrial.model.errors import InputError
from seatrial.model.reason import Explanation, placed, register

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster
    from seatrial.config.run import Run
    from seatrial.model.testbed import Testbed
    from seatrial.text.redact import Secrets

_SETTINGS = {
    "local": "seatrial.platforms.local:LocalPlatform",
    "kubernetes": "seatrial.platforms.kubernetes.config:KubernetesPlatform",
    "slurm": "seatrial.platforms.slurm:SlurmPlatform",
    "runai": "seatrial.platforms.runai:RunaiPlatform",
    "docker": "seatrial.platforms.docker:DockerPlatform",
    "baremetal": "seatrial.platforms.baremetal:BaremetalPlatform",
    "this-machine": "seatrial.platforms.baremetal:ThisMachinePlatform",
}
PLATFORMS.update({kind: partial(resolve_name, name) for kind, name in _SETTINGS.items()})


@dataclass(frozen=True, slots=True)
class Rendered:
    """Files to submit, by name, in the order of their use.

    `testbed` is what mpirun will span, with names in place of unknown addresses; None where a file has the commands.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    testbed: "Testbed | None" = field(default=None, compare=False)  # its functions are new with every rendering


@dataclass(frozen=True, slots=True)
class Leftover:
    """Objects or state of an earlier run."""

    run_id: str
    age_s: float
    what: str


class Platform(Protocol):
    """The contract that every platform fulfils; `tests/contract` holds each to it."""

    def render(self, run: "Run") -> Rendered:
        """Render what `launch` submits. Pure."""

    def launch(self, run: "Run") -> "Testbed":
        """Bring the nodes up. Returns when they answer, or raises LaunchError naming the cause."""

    def attach(self, run_id: str) -> "Testbed":
        """The testbed of a run that is up, as another process finds it. Raises InputError when it is over."""

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: "Secrets") -> None:
        """Write what the platform knows of the run, such as its nodes' logs, into `folder`, redacted."""

    def keep(self, run_id: str, seconds: float) -> bool:
        """Leave the nodes up for so long after this process; return false if there is nothing to keep."""

    def teardown(self, run_id: str) -> None:
        """Remove everything of that run. Idempotent, needs nothing in memory."""

    def leftovers(self) -> list[Leftover]:
        """The leftovers of runs whose process is gone."""

    def missing(self) -> list[str]:
        """List prerequisites that this machine lacks, each with the next step."""


class Isolator(Protocol):
    """Nodes out of service and back, by the platform's scheduler."""

    def command(self, node: str, run_id: str, why: str) -> str:
        """The command line that does what `isolate` does. Pure."""

    def isolate(self, node: str, run_id: str, why: str) -> bool:
        """Take the node out of service; false if it is already."""

    def release(self, node: str) -> None:
        """Put a node back that `isolate` took. Raises InputError for any other."""


def platform_for(cluster: "Cluster", file: Path | None = None) -> Platform:
    """The platform that `cluster` (read from `file`) names.

    Raises InputError when the parts of the cluster file do not fit together on it.
    """
    where = file or f"cluster {cluster.name}"
    try:
        module = import_module(cluster.platform.implementation())  # on first use: their SDKs are heavy
        platform: Platform = module.platform(cluster)
    except InputError as error:
        raise InputError(placed(str(where), error.reason)) from error
    return platform


def isolator_for(cluster: "Cluster") -> Isolator:
    """The isolation of the cluster's nodes. Raises InputError on a platform without a scheduler that could."""
    if not cluster.platform.isolates:
        raise InputError(f"platform {cluster.platform.kind}: cannot isolate nodes; legal: kubernetes, slurm")
    isolator: Isolator = import_module(
        f"{cluster.platform.implementation().removesuffix('.platform')}.isolate"
    ).isolator(cluster)
    return isolator


def platforms() -> dict[str, Platform]:
    """The platforms that can be run without a cluster file's settings, by kind."""
    without = {kind: model for kind, load in PLATFORMS.items() if (model := load()).stands_alone}
    return {kind: import_module(model.implementation()).platform() for kind, model in without.items()}


REASONS = {
    "gave-way": Explanation(
        "gave way to {job}",
        "The run had taken idle nodes of a cluster at work, and another job wanted them. It counts for nothing, and no "
        "node is to blame.",
        "There is nothing to do: the next pass of `seatrial qualify` tests the nodes again.",
    ),
    "run-keys-refused": Explanation(
        "the keys of the run cannot be stored: {problem}",
        "The folder for the keys belongs to another user, is open to others, or is a link: it may be planted.",
        "Find out who created the folder. Run `chmod 700` on your own folder, or set `XDG_STATE_HOME`.",
    ),
    "ssh-missing": Explanation(
        "ssh is missing: install openssh-client", "`seatrial ssh` needs the system's ssh.", "Install openssh-client."
    ),
    "baremetal-unreachable": Explanation(
        "{host}: no login: {problem}",
        "The host, or a jump host before it, does not answer. The line ends with ssh's words.",
        "Run `ssh HOST true` on this machine. Check the host's name, port, power and network, or leave it out.",
    ),
    "baremetal-connection-lost": Explanation(
        "{host}: the connection was lost: {problem}",
        "The host, or a jump host before it, stopped answering after the connection was up.",
        "Run `ssh HOST true` here. Check its load and network; raise `platform.start_timeout_s` where it is slow.",
    ),
    "baremetal-ssh-failed": Explanation(
        "{host}: ssh failed: {problem}",
        "ssh ended with an error before the login. The line ends with its words.",
        "Run `ssh -v HOST true` on this machine.",
    ),
    "baremetal-login-refused": Explanation(
        "{host}: refuses the login of user {user} ({methods})",
        "The host accepts none of the keys that ssh offers. Passwords are never asked for.",
        "Run `ssh HOST true`; set `platform.user` and `platform.key_file`, or load the key into the ssh agent.",
    ),
    "baremetal-host-key-unknown": Explanation(
        "{host}: the host key of {place} is not in {file}; get it from the host itself, or compare it with "
        "`ssh-keyscan {place} | ssh-keygen -lf -` before you add it",
        "A host is trusted only where known_hosts has its key; no key is accepted unseen.",
        "Compare the fingerprint of `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host's console with that "
        "of `ssh-keyscan HOST | ssh-keygen -lf -`. Where they are equal, add the line of `ssh-keyscan` to the file.",
    ),
    "baremetal-host-key-changed": Explanation(
        "{host}: {place} answers with another host key than {file} has; "
        "compare with `ssh-keygen -lF {place} -f {file}`",
        "The host was installed anew, or another machine has its address.",
        "Find out which on the host's console. Where it was installed anew, remove the old key with "
        "`ssh-keygen -R HOST -f FILE` and add the new one.",
    ),
    "baremetal-host-key-revoked": Explanation(
        "{host}: the host key of {place} is revoked in known_hosts",
        "Somebody marked the key as `@revoked`: it is not to be trusted any more.",
        "Make a new host key on the host (`ssh-keygen -A` after removing the old one), and add it to known_hosts.",
    ),
}

register(REASONS)
