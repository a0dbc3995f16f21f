"""Many nodes of one machine: one is asked for the software of all that see its files, and no other
is taken for it.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from seatrial.model.errors import RemoteError
from seatrial.remote import node_setup as system_module
from seatrial.remote.command import CommandResult
from seatrial.remote.node_setup import SharedFacts, System, _Contact, ask_system

BOOT, ROOT = "b" * 36, "8:2"
FIRST = System("node-0", BOOT, ROOT, "8:77")


class FakeContact:
    """A node that counts what it is asked."""

    def __init__(self, system: System | None, facts: Mapping[str, Any] | RemoteError) -> None:
        self._system, self._facts, self.asked = system, facts, list[str]()

    def system(self) -> System | None:
        return self._system

    def install(self) -> None:
        self.asked.append("install")

    def install_and_ask(self) -> Mapping[str, Any]:
        self.asked.append("install and ask")
        if isinstance(self._facts, RemoteError):
            raise self._facts
        return self._facts


def facts_of(shared: SharedFacts, contact: FakeContact) -> dict[str, Any]:
    return dict(shared.of(cast(_Contact, contact)))


def after_first(system: System | None = FIRST) -> SharedFacts:
    shared = SharedFacts()
    assert facts_of(shared, FakeContact(system, {"hostname": "node-0", "cpus": 2})) == {
        "hostname": "node-0",
        "cpus": 2,
    }
    return shared


@pytest.mark.parametrize(
    ("system", "asked", "cpus"),
    [
        (FIRST._replace(hostname="node-1"), [], 2),
        (FIRST._replace(hostname="node-1", probes="9:1"), ["install"], 2),
        (FIRST._replace(hostname="node-1", probes=""), ["install"], 2),
        (FIRST._replace(hostname="node-1", root="9:2"), ["install and ask"], 4),
        (FIRST._replace(hostname="node-1", boot="c" * 36), ["install and ask"], 4),
        (None, ["install and ask"], 4),
    ],
)
def test_facts_are_shared_only_between_nodes_of_one_system_and_file_tree(
    system: System | None, asked: list[str], cpus: int
) -> None:
    contact = FakeContact(system, {"hostname": "node-1", "cpus": 4})
    assert facts_of(after_first(), contact) == {"hostname": "node-1", "cpus": cpus}
    assert contact.asked == asked


def test_facts_of_a_first_node_without_a_known_system_are_not_shared() -> None:
    contact = FakeContact(FIRST, {"hostname": "node-1", "cpus": 4})
    assert facts_of(after_first(None), contact)["cpus"] == 4


def test_failed_facts_probe_is_repeated_on_the_next_node() -> None:
    shared = SharedFacts()
    with pytest.raises(RemoteError, match="no Python"):
        facts_of(shared, FakeContact(FIRST, RemoteError("no Python")))
    assert facts_of(shared, FakeContact(FIRST, {"hostname": "node-1", "cpus": 4}))["cpus"] == 4


def run_here(_: object, command: str, **__: object) -> CommandResult:
    done = subprocess.run(
        ["sh", "-c", "echo Welcome; " + command], capture_output=True, text=True, check=False
    )
    return CommandResult(done.returncode, done.stdout)


def test_system_is_identified_by_boot_id_root_and_probe_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_module, "run_command", run_here)
    probe = tmp_path / "it's facts.py"
    without = ask_system(cast(Any, None), str(probe), 5)
    probe.touch()
    there = ask_system(cast(Any, None), str(probe), 5)
    assert without is not None
    assert there is not None
    assert there.has_files_of(without)
    assert (without.probes, there.probes) == ("", f"{probe.stat().st_dev}:{probe.stat().st_ino}")
    assert there.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize(
    "output", ["", "Welcome", f"seatrial-system  {BOOT} 8:2", "seatrial-system node-1 x 8:2"]
)
def test_incomplete_system_answer_identifies_no_system(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_module, "run_command", lambda *_, **__: CommandResult(0, output))
    assert ask_system(cast(Any, None), "/w/facts.py", 5) is None
