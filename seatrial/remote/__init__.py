"""Reach nodes: SSH, MPI, and the probes that run there."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "ssh-refused": Explanation(
        "{address} port {port}: connection refused",
        "The node answers, and nothing listens on the SSH port.",
        "Check that sshd runs on the node and that `ssh_port` (222 by default) is its port.",
    ),
    "ssh-timeout": Explanation(
        "{address} port {port}: connection timed out",
        "No packet came back from the node: it is down, or a firewall or a cable stops the packets.",
        "Run `ping NODE` and `nc -vz NODE 222` from this host; open the firewall, or correct the route.",
    ),
    "ssh-unreachable": Explanation(
        "{address} port {port}: {problem}",
        "The connection to the SSH port failed. The end of the line has the error of the operating system.",
        "Run `ip route get ADDRESS` on this host, and correct the route or the network policy.",
    ),
    "ssh-no-server": Explanation(
        "{address} port {port}: no SSH server answers: {problem}",
        "Something listens on the port, and it is not sshd.",
        "Find what else uses `ssh_port` (222 by default) on that node.",
    ),
    "ssh-max-startups": Explanation(
        "{address} port {port}: sshd drops connections: raise MaxStartups in its sshd_config",
        "More connections arrive at once than sshd accepts before a login. The set-up is at fault.",
        "Set `MaxStartups 5000` in the sshd_config of the nodes and restart sshd.",
    ),
    "node-cannot-connect": Explanation(
        "{address} port {port}: the node that tries it cannot open a connection: raise its ulimit -n",
        "The node that connects is short of open files, ports or memory. The peer is not at fault.",
        "Check `ulimit -n`, `net.ipv4.ip_local_port_range` and the free memory of that node.",
    ),
    "peers-not-tried": Explanation(
        "no answer from the node that was to try it",
        "The probe that connects to the peers did not end, or printed something else.",
        "Log in to the node and run `python3` by hand; read the log of the run.",
    ),
    "ssh-host-key": Explanation(
        "{address} port {port}: answers with another host key than the one pinned for this run",
        "It is not the node that was launched: a duplicate address, a proxy, or an old container.",
        "Check `ip neigh` and the DNS record. Do not ignore it.",
    ),
    "ssh-key-rejected": Explanation(
        "{address} port {port}: does not accept this run's key for user {user}",
        "The node does not have the public key of this run.",
        "Check the mounted Secret, `user` in the cluster file, and `authorized_keys` in the image.",
    ),
    "ssh-handshake": Explanation(
        "{address} port {port}: SSH did not come up: {problem}",
        "sshd accepted the connection and ended it before the login.",
        "Read the log of sshd on the node. Check `MaxStartups` and the free memory of the node.",
    ),
    "ssh-session": Explanation(
        "no session: {problem}",
        "sshd does not open another session.",
        "Read the log of sshd on the node. Check `MaxSessions` and the free memory of the node.",
    ),
    "ssh-connection-lost": Explanation(
        "the connection broke: {problem}",
        "The connection ended while a command ran on the node.",
        "Read the log of sshd on the node, and check whether the node restarted.",
    ),
    "control-host-open-files": Explanation(
        "this host cannot open more connections ({problem}): raise ulimit -n",
        "The machine that runs seatrial is at its limit of open files. The cluster is not at fault.",
        "Run `ulimit -n 65536` before seatrial; in a systemd unit set `LimitNOFILE=`.",
    ),
    "output-flood": Explanation(
        "output flood: {excess}",
        "A login shell, a probe or the ranks on a node print without end. The node is a suspect.",
        "Run the same command on that node by hand. `NCCL_DEBUG=TRACE` in the cluster file causes it on all nodes.",
        formerly=("output-flood-of-node", "output-flood-of-server"),
    ),
    "node-python-missing": Explanation(
        "{python} is missing on the node: the image needs Python 3",
        "The probes need Python 3 on the node.",
        "Install Python 3 in the image, or set its path in the cluster file.",
    ),
    "node-probes-not-written": Explanation(
        "the probes cannot be written to {folder}: {problem}",
        "The working folder on the node is full or read-only.",
        "Check the free space and the permissions of the working folder.",
    ),
    "node-facts-timeout": Explanation(
        "does not say what it is within {timeout_s:g} s",
        "The probe that reads the facts of the node did not end in time.",
        "Log in and run `python3` by hand: a slow disk or a hanging driver shows there.",
    ),
    "node-facts-unreadable": Explanation(
        "does not {what}: {answer}",
        "A probe that reads the facts or the time of the node printed something else.",
        "Run `ssh NODE true` by hand: remove from the login shell of the node what prints.",
        formerly=("node-clock-unreadable",),
    ),
    "probe-failed": Explanation(
        "{probe} cannot measure: {problem}",
        "The probe could not do its work, or printed something else than its result. The line has its words.",
        "Run the probe by hand on that node: `python3 PROBE`. For a GPU, look for Xid errors in `dmesg`.",
        formerly=("probe-unreadable",),
    ),
    "probe-timeout": Explanation(
        "{probe} did not end within {seconds} s",
        "The probe was ended. A device may hang, or the time limit is too short for this node.",
        "Run the probe by hand on that node, or raise `timeout_s` of that check in the suite file.",
    ),
    "probe-killed": Explanation(
        "{probe} was killed (signal 9) before it could answer; memory may have run out",
        "Something on the node ended the probe: the kernel when memory ran out, a job limit, or a person.",
        "Look for `Out of memory` in `dmesg` of that node, and for limits of its job or container.",
    ),
}

register(REASONS)
