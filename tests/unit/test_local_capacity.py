"""What one machine cannot carry is said of the machine, with the setting to change."""

from pathlib import Path

import pytest

from seatrial.model.reason import code_of
from seatrial.platforms.local.doctor import problems


def machine(folder: Path, **changed: int) -> Path:
    """A /proc with limits that carry 512 nodes, but for `changed`."""
    limits = {"pid_max": 32768, "threads_max": 100_000, "max_net_namespaces": 90_000, "free_kib": 64 << 20} | changed
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
        ({"pid_max": 1024}, "2048 processes are needed, 1023 are free: sysctl -w kernel.pid_max=32768"),
        ({"threads_max": 2000}, "2048 processes are needed, 1999 are free: sysctl -w kernel.threads-max=32768"),
        (
            {"max_net_namespaces": 100},
            "257 network namespaces are needed, 100 are free: sysctl -w user.max_net_namespaces=32768",
        ),
        ({"free_kib": 1 << 20}, "8192 MiB of memory are needed, 1024 are free: use fewer nodes"),
    ],
)
def test_what_is_short_is_named_with_the_setting(limit: dict[str, int], sentence: str, tmp_path: Path) -> None:
    (problem,) = problems(256, machine(tmp_path, **limit))
    assert code_of(problem) == "local-machine-too-small"
    assert problem.startswith("this machine cannot carry 256 local nodes: ")
    assert sentence in problem


def test_few_nodes_fit_everywhere(tmp_path: Path) -> None:
    assert problems(4, machine(tmp_path, pid_max=50)) == []
