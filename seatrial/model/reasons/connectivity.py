"""Reasons why a node or a link cannot be reached, over SSH above all."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "ssh-refused": Explanation(
        "{address} port {port}: connection refused",
        "The node answers, and nothing listens on the SSH port.",
        "Check that sshd runs on the node and that `ssh_port` (222 by default) is its port.",
    ),
    "ssh-timeout": Explanation(
        "{address} port {port}: connection timed out",
        "No packet came back from the node: it is down, or a firewall or a cable stops the packets.",
        "Ping the node, then check its link, its routes and its firewall.",
    ),
    "ssh-unreachable": Explanation(
        "{address} port {port}: {problem}",
        "The connection to the SSH port failed. The end of the line has the error of the operating system.",
        "Check the address, the routes and the network policy between this host and the node.",
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
        "output flood: it printed more than {limit_mib:g} MiB and was ended",
        "A login shell or a probe on the node prints without end. The node is a suspect and is left out.",
        "Run the same command on that node by hand. Look for `NCCL_DEBUG=TRACE` in the cluster file.",
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
        "does not say what it is: {answer} ({problem})",
        "The probe that reads the facts of the node printed something else.",
        "Check the login shell of the node for programs that print.",
    ),
    "node-clock-unreadable": Explanation(
        "does not tell the time: {answer}",
        "The node did not answer with its time.",
        "Check the login shell of the node for programs that print.",
    ),
    "link-ssh-failed": Explanation(
        "SSH fails between them, not elsewhere: {problem}",
        "Both nodes reach the other nodes, and not each other.",
        "Check cable, port, routes and network policy between the two nodes.",
    ),
    "tcp-node-slow": Explanation(
        "{what} of TCP at best, the faster half of the nodes {usual} MB/s",
        "The node's best TCP stream is less than a quarter of what the faster half of the nodes reaches, after three"
        " tries (`degraded`).",
        "Check the link speed of its NIC (`ethtool`), its cable and switch port, and what else uses its network.",
    ),
    "tcp-link-slow": Explanation(
        "{rate} MB/s of TCP between them, the faster half of the nodes {usual} MB/s; neither end is slow elsewhere",
        "One link is much slower than all others, after three tries (`degraded`).",
        "Check what only these two nodes share: an uplink between their switches, a route, a tunnel.",
    ),
    "tcp-cut-slow": Explanation(
        "TCP is slow between {parties}: {rate} MB/s at best on {streams} streams across, {usual} MB/s within each side",
        "The nodes fall into groups. Within a group streams are fast; all streams between groups that were measured are"
        " slow (`degraded`).",
        "Check the uplinks, routes and tunnels between the groups.",
    ),
    "tcp-nodes-divided": Explanation(
        "{slow} of {nodes} nodes ({names}) send or receive far less than the {usual} MB/s that the faster half reaches:"
        " too many to tell which nodes are healthy",
        "Much of a small cluster is slow on the network, so no node is blamed (`inconclusive`).",
        "Measure between two of these nodes by hand (`iperf3`), and look for what the slow ones share.",
    ),
    "tcp-not-measured": Explanation(
        "TCP was not measured on {missing} links: {links}",
        "Streams between these nodes did not start or end in time, so their links are unknown (`inconclusive`).",
        "Read the log of the run; check that nodes may connect to each other's high ports.",
    ),
    "links-ssh-failed": Explanation(
        "SSH fails between it and {failed} of {others} nodes: {problem}",
        "The node reaches most nodes, and fails with several.",
        "Check what these nodes have in common: a switch, a route, a network policy.",
    ),
    "fabric-cut": Explanation(
        "cut between {parties}: {pairs} pairs fail, and within each side all reach each other: {problem}",
        "The nodes fall into groups that do not reach each other. Nothing tells which side is at fault.",
        "Check the switches, uplinks, routes and network policies between the groups.",
    ),
    "no-pair-works": Explanation(
        "none of {pairs} pairs of nodes reach each other: {problem}",
        "No node reaches any other one, so the set-up is at fault and no node is blamed (`inconclusive`).",
        "Check the network, its policies, the firewall of the nodes and the SSH port.",
    ),
    "node-ssh-failed": Explanation(
        "SSH fails between it and {failed} of {others} nodes: {problem}",
        "The node reaches few of the other nodes.",
        "Check cable, port, routes and network policy of that node.",
    ),
}
