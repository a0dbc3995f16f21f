"""Which run and node are meant, and the command line of ssh."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.platforms import state as states
from seatrial.platforms.local.plan import layout
from seatrial.remote.ssh import known_hosts
from seatrial.runs import login
from seatrial.system.private import write_private
from seatrial.system.process import this_process
from seatrial.tasks.record import write_run_json
from tests import samples


def gke_nodes(count: int = 3) -> Testbed:
    nodes = tuple(
        Node(f"gke-{i}", f"10.0.0.{i}", 222, 8, "ssh-ed25519 AAAA", 8) for i in range(count)
    )
    return Testbed(
        "r1", nodes, "root", Path("/run/seatrial/r1/id_ed25519"), dial_tcp, "/tmp/seatrial/r1"
    )


@pytest.mark.parametrize(("word", "name"), [("head", "gke-0"), ("gke-2", "gke-2"), ("1", "gke-1")])
def test_node_is_found_by_name_index_or_head(word: str, name: str) -> None:
    assert login.node_of(gke_nodes(), word).name == name


@pytest.mark.parametrize("word", ["3", "gke-3", "-1", ""])
def test_an_unknown_node_is_answered_with_the_known_ones(word: str) -> None:
    with pytest.raises(
        InputError, match=r"run r1: has no node .*; legal: gke-0, gke-1, gke-2, head, or 0 to 2$"
    ):
        login.node_of(gke_nodes(), word)


def test_thousands_of_nodes_are_not_all_listed() -> None:
    with pytest.raises(InputError, match=r"gke-7 and 504 more, head, or 0 to 511$"):
        login.node_of(gke_nodes(512), "x")


def test_run_is_found_by_id_or_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / "state" / kind)
    result = samples.healthy_local()
    made = states.make_folder(result.run_id, "local")
    write_run_json(result, tmp_path / "anywhere")
    (tmp_path / "runs" / result.run_id).mkdir(parents=True)  # as it is while the run is at work
    for word in (result.run_id, f"{tmp_path}/anywhere", f"{tmp_path}/runs/{result.run_id}/"):
        assert login.folder_of(word) == (result.run_id, made)
    with pytest.raises(
        InputError, match=f"run r9: is over, or not from this machine and user; up: {result.run_id}"
    ):
        login.folder_of("r9")


def test_a_node_before_its_run_is_refused_with_the_right_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / "state" / kind)
    states.make_folder("r1", "local")
    with pytest.raises(InputError, match=r"^ssh: RUN comes before NODE: seatrial ssh r1 node-2$"):
        login.log_in("node-2", "r1", ())
    with pytest.raises(
        InputError, match=r"^run node-2: is over, or not from this machine and user; up: r1$"
    ):
        login.log_in("node-2", "node-3", ())


def test_ssh_gets_no_key_that_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / "state" / kind)
    cluster = Cluster.model_validate({"name": "test", "nodes": 2, "platform": {"kind": "local"}})
    folder, _, host_key = states.begin(Run("r1", cluster, load_suite("quick"), tmp_path), "local")
    states.write_owner(folder, "keeper", this_process())
    plan = layout("r1", cluster, folder)
    nodes = [Node(node.name, node.address, 22, 1, host_key.public, 0) for node in plan.nodes]
    write_private(plan.state / "known_hosts", known_hosts(nodes))
    key = login.testbed_of("r1").key_file
    key.rename(tmp_path / "key")
    key.symlink_to(tmp_path / "key")
    with pytest.raises(InputError, match="run r1: id_ed25519: is a symbolic link"):
        login.testbed_of("r1")


def test_ssh_takes_nothing_from_the_user_and_pins_the_host_key() -> None:
    argv = login.ssh_argv(gke_nodes(), gke_nodes().nodes[1], ("nvidia-smi", "-L"), terminal=False)
    assert argv[:3] == ["ssh", "-F", "none"]
    options = dict(word.partition("=")[::2] for flag, word in pairwise(argv) if flag == "-o")
    assert options["StrictHostKeyChecking"] == "yes"
    assert options["UserKnownHostsFile"] == "/run/seatrial/r1/known_hosts"
    assert options["IdentityFile"] == "/run/seatrial/r1/id_ed25519"
    assert shlex.split(options["ProxyCommand"])[-3:] == ["dial", "r1", "gke-1"]
    assert argv[-7:] == ["-p", "222", "-l", "root", "10.0.0.1", "nvidia-smi", "-L"]
    assert "-t" in login.ssh_argv(gke_nodes(), gke_nodes().head, (), terminal=True)
