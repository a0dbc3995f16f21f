"""What the local platform would start, as text."""

from pathlib import Path

import pytest

from seatrial.config.cluster import Cluster
from seatrial.platforms.local import plan
from seatrial.platforms.local.plan import Account
from seatrial.platforms.local.platform import problems

ROOT = Account("root", 0, 0)
USER = Account("jo", 1000, 1000)


def cluster(**fields: object) -> Cluster:
    return Cluster.model_validate(
        {"name": "c", "nodes": 3, "platform": {"kind": "local"}, **fields}
    )


def layout(**fields: object) -> plan.LocalPlan:
    return plan.layout("r1", cluster(**fields), Path("/state"))


def script(account: Account = ROOT, node: int = 1, **fields: object) -> str:
    planned = layout(**fields)
    return plan.node_script(planned, planned.nodes[node], cluster(**fields), account)


def test_nodes_have_names_and_addresses_in_order() -> None:
    nodes = layout().nodes
    assert [node.namespace for node in nodes] == [f"seatrial-r1-node-{i}" for i in range(3)]
    assert [node.address for node in nodes] == ["10.77.0.2", "10.77.0.3", "10.77.0.4"]
    assert plan.layout("r1", cluster(nodes=300), Path("/s")).nodes[299].address == "10.77.1.45"


def test_every_node_is_attached_to_the_bridge() -> None:
    batch = plan.network_batch(layout(), cluster())
    assert batch.count("master br0") == 3
    assert "link add n2 type veth peer name eth0 netns seatrial-r1-node-2" in batch


def test_ssh_port_is_set_for_server_and_client() -> None:
    planned = layout(ssh_port=2022)
    assert "\nPort 2022\n" in "\n" + plan.sshd_config(planned, planned.nodes[0], {})
    assert "  Port 2022\n" in plan.ssh_config(planned, ROOT)


def test_sshd_refuses_passwords_and_ssh_checks_pinned_host_keys() -> None:
    planned = layout()
    server, client = (
        plan.sshd_config(planned, planned.nodes[0], {"PATH": "/a b"}),
        plan.ssh_config(planned, ROOT),
    )
    assert "PasswordAuthentication no" in server
    assert 'SetEnv "PATH=/a b"' in server
    assert "StrictHostKeyChecking yes" in client
    assert "StrictHostKeyChecking no" not in client


def test_root_runs_sshd_as_root_and_a_plain_user_as_itself() -> None:
    assert "unshare --user" not in script(ROOT)
    assert ("mkdir -p /run/sshd" in script(ROOT), "ip_unprivileged_port_start" in script(ROOT)) == (
        True,
        False,
    )
    assert "unshare --user --map-user=1000 --map-group=1000" in script(USER)
    assert "ip_unprivileged_port_start" in script(USER)


def test_fault_is_only_in_the_scripts_of_its_nodes() -> None:
    faults = [
        {"node": "node-1", "rate": "200mbit"},
        {"link": ["node-0", "node-2"], "state": "down"},
    ]
    scripts = [script(node=i, faults=faults) for i in range(3)]
    assert ["tbf rate 200mbit" in text for text in scripts] == [False, True, False]
    assert ["route add unreachable" in text for text in scripts] == [True, False, True]
    assert "unreachable 10.77.0.4/32" in scripts[0]
    stopped = script(faults=[{"node": "node-1", "sshd": "stopped"}])
    assert "sshd" not in stopped.replace("/run/sshd", "")


def test_fault_that_stops_a_node_comes_last_among_faults_of_a_check() -> None:
    later = [
        {"node": "node-1", **fault, "after": "connectivity"}
        for fault in ({"sshd": "stopped"}, {"rate": "8kbit"})
    ]
    waiting = script(faults=later).partition("/after-connectivity\n")[2].splitlines()
    assert "rate 8kbit" in waiting[0]
    assert waiting[1:4] == ["rm /state/nodes/node-1/after-connectivity", "kill -KILL -1", ") &"]


def test_passwd_file_replaces_only_the_home_of_the_account() -> None:
    text = plan.passwd_file(
        "root:x:0:0:root:/root:/bin/bash\nsshd:x:101::/run/sshd:/bin/false\n", ROOT, Path("/h")
    )
    assert text == "root:x:0:0::/h:/bin/sh\nsshd:x:101::/run/sshd:/bin/false\n"


def test_neighbour_entries_of_nodes_are_permanent() -> None:
    """Permanent entries do not count against gc_thresh3; each has the address of its node."""
    planned = layout()
    lines = plan.neighbour_batch(planned).splitlines()
    assert len(lines) == len(planned.nodes)
    addresses = [line.split("lladdr ")[1].split()[0] for line in lines]
    assert len(set(addresses)) == len(planned.nodes)
    assert all("nud permanent dev eth0" in line for line in lines)
    for index, address in enumerate(addresses):
        assert f"\nlink set eth0 address {address}\n" in plan.interface_batch(planned.nodes[index])


# What one machine cannot carry is said of the machine, with the setting to change.


def machine(folder: Path, **changed: int) -> Path:
    """A /proc with limits that carry 512 nodes, but for `changed`."""
    limits = {
        "pid_max": 32768,
        "threads_max": 100_000,
        "max_net_namespaces": 90_000,
        "free_kib": 64 << 20,
    } | changed
    for name, value in (
        ("sys/kernel/pid_max", limits["pid_max"]),
        ("sys/kernel/threads-max", limits["threads_max"]),
        ("sys/user/max_net_namespaces", limits["max_net_namespaces"]),
        ("meminfo", f"MemTotal: 1 kB\nMemAvailable: {limits['free_kib']} kB"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{value}\n")
    (folder / "1").mkdir()
    return folder


def test_a_usual_machine_carries_512_nodes(tmp_path: Path) -> None:
    assert problems(512, machine(tmp_path)) == []


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        (
            {"pid_max": 1024},
            "2048 processes are needed, 1023 are free: sysctl -w kernel.pid_max=32768",
        ),
        (
            {"threads_max": 2000},
            "2048 processes are needed, 1999 are free: sysctl -w kernel.threads-max=32768",
        ),
        (
            {"max_net_namespaces": 100},
            (
                "257 network namespaces are needed, 100 are free: sysctl -w "
                "user.max_net_namespaces=32768"
            ),
        ),
        ({"free_kib": 1 << 20}, "8192 MiB of memory are needed, 1024 are free: use fewer nodes"),
    ],
)
def test_a_low_limit_is_named_with_its_setting(
    limit: dict[str, int], sentence: str, tmp_path: Path
) -> None:
    (problem,) = problems(256, machine(tmp_path, **limit))
    assert problem.code == "local-machine-too-small"
    assert problem.sentence.startswith("this machine cannot carry 256 local nodes: ")
    assert sentence in problem.sentence


def test_few_nodes_cause_no_problem_on_a_small_machine(tmp_path: Path) -> None:
    assert problems(4, machine(tmp_path, pid_max=50)) == []
