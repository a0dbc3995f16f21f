"""Reach nodes over SSH with paramiko: pinned host keys, per-run keys, many nodes at once."""

import base64
import errno
import hmac
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from seatrial.model.errors import RemoteError, SeatrialError
from seatrial.model.reason import Reason, caused, placed
from seatrial.model.testbed import Node, Testbed

if TYPE_CHECKING:
    import paramiko

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # paramiko raises its errors too

T = TypeVar("T")
Item = TypeVar("Item")

_FANOUT = 64  # connections opened at once; sshd's MaxStartups and this host's threads set the bound
_PER_SHARED_CORE = 4  # the limit if all nodes share cores: enough to keep the cores busy


class HostKeyError(RemoteError):
    """The node answers with another host key than the one pinned for this run."""


def connected(testbed: Testbed, node: Node, timeout_s: float) -> "closing[paramiko.Transport]":
    """Return an authenticated SSH connection to `node`, closed at the end.

    Raises RemoteError with the cause (refused, timed out, key not accepted), HostKeyError when the
    host key is not the pinned one.
    """
    return closing(connect(testbed, node, timeout_s))


def connect(testbed: Testbed, node: Node, timeout_s: float) -> "paramiko.Transport":
    """Open a connection that the caller closes; see `connected`."""
    import paramiko

    try:
        transport = paramiko.Transport(testbed.dial(node, timeout_s))
    except TimeoutError as error:
        raise RemoteError(_reason(node, "ssh-timeout")) from error
    except ConnectionRefusedError as error:
        raise RemoteError(_reason(node, "ssh-refused")) from error
    except OSError as error:
        # A shortage on this host is no fault of the node
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise SeatrialError.of("control-host-open-files", problem=str(error.strerror)) from None
        problem = error.strerror.lower() if error.strerror else str(error)
        reason = Reason.of("ssh-unreachable", address=node.address, port=node.port, problem=problem)
        # For example the end of its pod
        cause = next((each for each in error.args if isinstance(each, Reason)), None)
        raise RemoteError(placed(node.name, caused(reason, cause))) from error
    except paramiko.SSHException as error:
        raise RemoteError(_reason(node, "ssh-no-server", problem=str(error))) from error
    try:
        _handshake(transport, testbed, node, timeout_s)
    except BaseException:
        transport.close()
        raise
    return transport


def _handshake(
    transport: "paramiko.Transport", testbed: Testbed, node: Node, timeout_s: float
) -> None:
    import paramiko

    # Seconds: firewalls drop silent connections, and a sweep is silent for minutes
    transport.set_keepalive(15)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = timeout_s
    kind, _, pinned = node.host_key.partition(" ")
    try:
        transport.get_security_options().key_types = (kind,)
        transport.start_client(timeout=timeout_s)
        if not hmac.compare_digest(
            transport.get_remote_server_key().asbytes(), base64.b64decode(pinned.split()[0])
        ):
            raise HostKeyError(_reason(node, "ssh-host-key"))
        transport.auth_publickey(
            testbed.user_of(node), paramiko.Ed25519Key.from_private_key_file(str(testbed.key_file))
        )
    except paramiko.AuthenticationException as error:
        raise RemoteError(_reason(node, "ssh-key-rejected", user=testbed.user_of(node))) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise RemoteError(
            _reason(node, "ssh-handshake", problem=str(error) or type(error).__name__)
        ) from error


def _reason(node: Node, code: str, **values: str) -> Reason:
    return placed(node.name, Reason.of(code, address=node.address, port=node.port, **values))


def fan_out(testbed: Testbed) -> int:
    """Return how many nodes to ask at once: fewer if they share the cores of one machine."""
    return (
        _FANOUT
        if testbed.shared_cores is None
        else min(_FANOUT, _PER_SHARED_CORE * testbed.shared_cores)
    )


def on_each(
    nodes: Sequence[Node], function: Callable[[Node], T], at_once: int = _FANOUT
) -> dict[str, T | RemoteError]:
    """Call `function` for every node, `at_once` in parallel; return the result, or the RemoteError
    that it raised, by node name.
    """

    def guarded(node: Node) -> T | RemoteError:
        try:
            return function(node)
        except RemoteError as error:
            return error

    return dict(
        zip((node.name for node in nodes), in_parallel(nodes, guarded, at_once), strict=True)
    )


def answered(answers: Mapping[str, T | RemoteError]) -> dict[str, T]:
    """Return the results of the nodes that gave one, by name."""
    return {name: answer for name, answer in answers.items() if not isinstance(answer, RemoteError)}


def in_parallel(items: Sequence[Item], function: Callable[[Item], T], at_once: int) -> list[T]:
    """Call `function` for every item, `at_once` in parallel; return the results in order."""
    if not items:
        return []
    pool = ThreadPoolExecutor(min(at_once, len(items)), thread_name_prefix="ssh")
    try:
        return list(pool.map(function, items))
    finally:
        # An interrupted run does not wait for silent nodes, whose connections end at teardown.
        pool.shutdown(wait=False, cancel_futures=True)


def allow_many_connections() -> None:
    """Raise the soft limit of open files, of which every connection needs one; 1024 are too few for
    a large cluster.
    """
    import resource  # POSIX only: `seatrial judge` also runs elsewhere

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def known_hosts(nodes: Iterable[Node]) -> str:
    """Return the known_hosts file that pins every node's key under its name and its address."""
    lines = []
    for node in nodes:
        names = dict.fromkeys((node.name, node.address))
        patterns = (name if node.port == 22 else f"[{name}]:{node.port}" for name in names)
        lines.append(f"{','.join(patterns)} {node.host_key}\n")
    return "".join(lines)


def pinned_keys(text: str) -> dict[str, str]:
    """Return the public key by name and by address, without brackets and port, from the text of
    `known_hosts`.
    """
    lines = (line.partition(" ") for line in text.splitlines())
    return {
        re.sub(r"^\[(.*)\]:\d+$", r"\1", name): key
        for names, _, key in lines
        for name in names.split(",")
    }


def answers(testbed: Testbed, node: Node, timeout_s: float) -> bool:
    """Return whether an SSH server answers at the node's port."""
    try:
        with testbed.dial(node, timeout_s) as sock:
            sock.settimeout(timeout_s)
            return sock.recv(4) == b"SSH-"
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class KeyPair:
    """`private` is an OpenSSH private key file, `public` a line "ssh-ed25519 AAAA..."."""

    private: str = field(repr=False)  # never shown, wherever the pair is printed
    public: str


def new_key_pair() -> KeyPair:
    """Return a fresh ed25519 key pair without passphrase."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private.decode(), public.decode())
