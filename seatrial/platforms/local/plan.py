"""The addresses, configuration files and scripts of a local testbed. Pure."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import permutations
from pathlib import Path

from seatrial.config.cluster import Cluster
from seatrial.config.faults import Fault, LinkFault, NodeFault, SwitchFault

# Runs can share these addresses: each run's bridge is in a namespace of its own
NETWORK = IPv4Network("10.77.0.0/16")
BRIDGE = "br0"
NEIGHBOURS = "neighbours.batch"
INTERFACES = "interfaces.batch"
Play = Iterator[tuple[str | None, str]]  # commands, each with the check after which it runs
_END_ALL = "kill -KILL -1"  # kills all processes of a node but process 1, which then ends too


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node before its launch."""

    index: int
    name: str
    namespace: str
    address: str
    folder: Path


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """Files and nodes of a run; `state` holds keys, sockets and one folder per node."""

    run_id: str
    state: Path
    port: int
    nodes: tuple[LocalNode, ...]

    def waiting(self, cluster: Cluster) -> set[Path]:
        """Return the FIFOs at which the faults of nodes and of the switch wait for a check."""
        played = [(self.state, _switch_faults(self, cluster))]
        played += [(node.folder, _node_faults(self, node, cluster)) for node in self.nodes]
        return {_fifo(folder, check) for folder, faults in played for check, _ in faults if check}


@dataclass(frozen=True, slots=True)
class Account:
    """The user that sshd accepts: the one who started the run."""

    name: str
    uid: int
    gid: int


def layout(run_id: str, cluster: Cluster, state: Path) -> LocalPlan:
    """Return the plan of a run of `cluster`, with names and numbers of everything in it."""
    nodes = tuple(
        LocalNode(
            index=i,
            name=name,
            namespace=f"seatrial-{run_id}-{name}",
            address=str(NETWORK[i + 2]),
            folder=state / "nodes" / name,
        )
        for i, name in enumerate(cluster.node_names())
    )
    return LocalPlan(run_id, state, cluster.ssh_port, nodes)


def network_batch(plan: LocalPlan, cluster: Cluster) -> str:
    """Return commands for `ip -batch` in the switch's namespace: the bridge, and a veth pair for
    each node.
    """
    lines = [
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"addr add {NETWORK[1]}/{NETWORK.prefixlen} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]
    bridges = dict[str, str]()
    for i, fault in enumerate(cluster.faults, start=1):
        if isinstance(fault, SwitchFault):
            bridges |= dict.fromkeys(fault.switch, f"br{i}")
            lines += [
                f"link add br{i} type bridge",
                f"link set br{i} up",
                f"link add up{i} type veth peer name down{i}",
                f"link set up{i} master br{i} up",
                f"link set down{i} master {BRIDGE} up",
            ]
    for node in plan.nodes:
        lines += [
            f"netns add {node.namespace}",
            f"link add n{node.index} type veth peer name eth0 netns {node.namespace}",
            f"link set n{node.index} master {bridges.get(node.name, BRIDGE)} up",
        ]
    return "\n".join(lines) + "\n"


def switch_script(plan: LocalPlan, cluster: Cluster) -> str:
    """Return the script that makes the network in the switch's namespace, with faults of links and
    switches.
    """
    slow = {
        name
        for fault in cluster.faults
        if isinstance(fault, LinkFault) and fault.rate
        for name in fault.link
    }
    lines = [
        "set -eu",
        f"ip -batch {_quote(plan.state / 'network.batch')}",
        # Packets of no class are not limited
        *(
            f"tc qdisc add dev n{node.index} root handle 1: htb"
            for node in plan.nodes
            if node.name in slow
        ),
        *_begin(plan.state, _switch_faults(plan, cluster)),
    ]
    return "\n".join(lines) + "\n"


def _switch_faults(plan: LocalPlan, cluster: Cluster) -> Play:
    """Yield the commands at the switch that limit the rates of uplinks and links."""
    node = {node.name: node for node in plan.nodes}
    for i, fault in enumerate(cluster.faults, start=1):
        if isinstance(fault, SwitchFault):
            for end in ("up", "down"):
                yield fault.after, f"tc qdisc add dev {end}{i} root {_token_bucket(fault.uplink)}"
        elif isinstance(fault, LinkFault) and fault.rate:
            for source, target in permutations(fault.link):
                device = f"dev n{node[target].index} parent 1:"
                limit = f"classid 1:{i} htb rate {fault.rate} quantum 60000"
                match = f"match ip src {node[source].address}/32 flowid 1:{i}"
                yield fault.after, f"tc class add {device} {limit}"
                yield fault.after, f"tc filter add {device} protocol ip prio 1 u32 {match}"


def _token_bucket(rate: str) -> str:
    return f"tbf rate {rate} burst 32kbit latency 400ms"


def _fifo(folder: Path, check: str) -> Path:
    return folder / f"after-{check}"


def _begin(folder: Path, faults: Play) -> Iterator[str]:
    """Yield the commands: those of None run at once.

    The others wait at a FIFO until it is opened for writing, and remove it when they are done.
    """
    waiting: dict[str, list[str]] = {}
    for check, command in faults:
        if check:
            waiting.setdefault(check, []).append(command)
        else:
            yield command
    for check, later in waiting.items():
        fifo = _quote(_fifo(folder, check))
        # Last, since it kills this shell too
        kills = [command for command in later if command == _END_ALL]
        rest = [command for command in later if command != _END_ALL]
        yield from ("(", f"cat {fifo}", *rest, f"rm {fifo}", *kills, ") &")


def node_script(plan: LocalPlan, node: LocalNode, cluster: Cluster, account: Account) -> str:
    """Return the script of a node's process 1: network, mounts, faults, sshd."""
    stopped = any(fault.sshd and not fault.after for fault in _own_faults(node, cluster))
    etc = _quote(node.folder / "etc")
    lines = [
        "set -eu",
        # IPv6 neighbour discovery would go from every node to all others
        "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6 || :",
        f"ip -batch {_quote(node.folder / INTERFACES)}",
        f"ip -batch {_quote(plan.state / NEIGHBOURS)}",
        f": > {_quote(node.folder / 'up')}",
        f"hostname {node.name}",
        # The machine's /etc, except for the run's own hosts and passwd. These two are not bind
        # mounts: the kernel removes such a mount when the machine's file is replaced, as when a
        # package adds a user.
        f"mkdir {etc}",
        f"mount --bind /etc {etc}",
        "mount -t tmpfs tmpfs /etc",
        f"ln -s {etc}/* /etc",
        f"ln -sf {_quote(plan.state / 'hosts')} {_quote(node.folder / 'passwd')} /etc",
        "mount -t proc proc /proc",
        # Open MPI names its segments by host name and pid, which are equal in two runs
        "mount -t tmpfs tmpfs /dev/shm",
        # Needs of sshd: for root its empty folder, for a plain user the right to use a port below
        # 1024.
        "mkdir -p /run/sshd"
        if account.uid == 0
        else "echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start",
        *_begin(node.folder, _node_faults(plan, node, cluster)),
        "exec sleep infinity" if stopped else _start_sshd(node, account),
    ]
    return "\n".join(lines) + "\n"


def interface_batch(node: LocalNode) -> str:
    """Return commands for `ip -batch` on the node: its end of the network."""
    return f"""\
link set lo up
link set eth0 address {_mac(node)}
addr add {node.address}/{NETWORK.prefixlen} dev eth0
link set eth0 up
"""


def neighbour_batch(plan: LocalPlan) -> str:
    """Return commands for `ip -batch` on each node: the link addresses of all nodes.

    The kernel has one neighbour table for all namespaces, limited to 1,024 entries (gc_thresh3)
    unless they are permanent: 64 nodes would fill it, and fail with "no route to host".
    """
    return "".join(
        f"neigh replace {node.address} lladdr {_mac(node)} nud permanent dev eth0\n"
        for node in plan.nodes
    )


def _mac(node: LocalNode) -> str:
    """Return a locally administered address, different for each node."""
    return f"02:00:00:00:{node.index >> 8:02x}:{node.index & 255:02x}"


def _start_sshd(node: LocalNode, account: Account) -> str:
    """Return the command that starts sshd, as root or the plain user, who is mapped to itself since
    root of a user namespace may not change groups.
    """
    as_user = (
        ""
        if account.uid == 0
        else f"unshare --user --map-user={account.uid} --map-group={account.gid} "
    )
    # Not exec: the shell stays process 1 and reaps orphans. -r: for a connection, sshd forks
    # without executing itself again, which takes six times as long; OpenSSH 9.8 and later ignore
    # it.
    config = _quote(node.folder / "sshd_config")
    return f"{as_user}$(command -v sshd || echo /usr/sbin/sshd) -D -e -r -f {config} & wait $!"


def _node_faults(plan: LocalPlan, node: LocalNode, cluster: Cluster) -> Play:
    """Yield the commands on the node of its faults, and of those of its links."""
    for fault in cluster.faults:
        if node.name in fault.nodes:
            for command in _fault_commands(plan, node, fault):
                yield fault.after, command


def _own_faults(node: LocalNode, cluster: Cluster) -> list[NodeFault]:
    return [
        fault
        for fault in cluster.faults
        if isinstance(fault, NodeFault) and node.name in fault.nodes
    ]


def _fault_commands(plan: LocalPlan, node: LocalNode, fault: Fault) -> Iterator[str]:
    if isinstance(fault, LinkFault):
        other = next(n for n in plan.nodes if n.name in fault.link and n.name != node.name)
        if fault.state:
            yield f"ip route add unreachable {other.address}/32"
        if fault.loss:  # netem is not in every kernel
            share = f"{float(fault.loss.rstrip('%')) / 100:g}"
            yield (
                f"iptables -w -A INPUT -s {other.address}/32 -m statistic --mode random "
                f"--probability {share} -j DROP"
            )
    elif isinstance(fault, NodeFault):
        if fault.rate:
            yield f"tc qdisc add dev eth0 root {_token_bucket(fault.rate)}"
        if fault.cpu_share:
            program = Path(__file__).with_name("slow_cpu.py")
            yield shlex.join([sys.executable, "-I", str(program), f"{fault.cpu_share:g}"]) + " &"
        if fault.memory:
            yield f"ulimit -v {fault.memory // 1024}"
        if fault.sshd and fault.after:
            yield _END_ALL


def hosts_file(nodes: Sequence[LocalNode]) -> str:
    """Return /etc/hosts as every node sees it."""
    return "127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in nodes)


def passwd_file(original: str, account: Account, home: Path) -> str:
    """Return /etc/passwd with the account's home in the run's folder and a plain shell, which reads
    no ~/.bashrc.
    """
    others = [line for line in original.splitlines() if not line.startswith(f"{account.name}:")]
    own = f"{account.name}:x:{account.uid}:{account.gid}::{home}:/bin/sh"
    return "\n".join([own, *others]) + "\n"


def sshd_config(plan: LocalPlan, node: LocalNode, environment: dict[str, str]) -> str:
    """Return sshd's configuration: only this run's key, and limits that allow many connections at
    once.
    """
    settings = " ".join(f'"{key}={value}"' for key, value in environment.items())
    return f"""\
Port {plan.port}
HostKey {node.folder}/ssh_host_ed25519_key
AuthorizedKeysFile {plan.state}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 2000
MaxSessions 2000
UseDNS no
PrintMotd no
DisableForwarding yes
SetEnv {settings}
"""


def ssh_config(plan: LocalPlan, account: Account) -> str:
    """Return ~/.ssh/config of every node, so that `ssh node-1` and mpirun's rsh agent need no
    options.

    Timeouts are long, as mpirun logs in to many nodes at once and all share the machine's cores.
    """
    return f"""\
Host *
  Port {plan.port}
  User {account.name}
  IdentityFile {plan.state}/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile {plan.state}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout {10 + len(plan.nodes) // 2}
  KexAlgorithms curve25519-sha256
  LogLevel ERROR
"""


def node_environment(node: LocalNode, cluster: Cluster) -> dict[str, str]:
    """Return the environment of sessions: the caller's PATH, a separate temporary folder,
    faults.
    """
    path = os.environ.get("PATH", os.defpath)
    faults = _own_faults(node, cluster)
    wrong = [
        f"{f.computes}:{(f.device or '').replace('gpu-', 'cuda:')}" for f in faults if f.computes
    ]
    # Read by seatrial/remote/probes/devices.py
    computing = {"SEATRIAL_COMPUTE_FAULT": wrong[-1]} if wrong else {}
    playing = [f"{name}={value}" for fault in faults for name, value in _of_training(fault)]
    # Read by seatrial/remote/probes/pretraining.py
    training = {"SEATRIAL_TRAINING_FAULT": ",".join(playing)} if playing else {}
    return {
        "PATH": f"{path}:/usr/sbin:/sbin",
        "TMPDIR": str(node.folder / "tmp"),
        **computing,
        **training,
    }


def _of_training(fault: NodeFault) -> Iterator[tuple[str, object]]:
    """Yield the settings of a fault that the training probe plays."""
    for name in ("sleeps_at", "loses_loader_at", "replays_wrong", "checkpoint_s"):
        if getattr(fault, name) is not None:
            yield name, getattr(fault, name)


def _quote(path: Path) -> str:
    return shlex.quote(str(path))
