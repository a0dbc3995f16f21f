"""Ranges of host names become hosts, and the short form of many hosts is read back."""

from pathlib import Path

import pytest

from seatrial.config.cluster import load_cluster
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.text.hostlist import MAX_HOSTS, expand, host_list


@pytest.mark.parametrize(
    ("patterns", "hosts"),
    [
        (["gpu-[01-03]"], ("gpu-01", "gpu-02", "gpu-03")),
        (
            ["gpu-[8-10].example.com"],
            ("gpu-8.example.com", "gpu-9.example.com", "gpu-10.example.com"),
        ),
        (["gpu-[098-101]"], ("gpu-098", "gpu-099", "gpu-100", "gpu-101")),
        (["b[2,5-6]", "a"], ("b2", "b5", "b6", "a")),
        (["10.0.0.[7-8]", "fd00::1"], ("10.0.0.7", "10.0.0.8", "fd00::1")),
    ],
)
def test_ranges_are_expanded_in_order(patterns: list[str], hosts: tuple[str, ...]) -> None:
    assert expand(patterns) == hosts


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("gpu-[3-1]", "smaller number first"),
        ("gpu-[]", "a range must be"),
        ("gpu-[1-2", "must be a host name"),
        ("gpu-[1][2]", "must be a host name"),
        ("-oProxyCommand=id", "must be a host name"),
        ("gpu 1", "must be a host name"),
        ("gpu-1\n", "must be a host name"),
        ("", "must be a host name"),
        ("gpu-[1-3,2]", "host gpu-2 is there twice"),
        ("gpu-[0-999999999]", f"more than {MAX_HOSTS} hosts"),
    ],
)
def test_invalid_host_patterns_are_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        expand([pattern])


def test_shortened_host_list_expands_to_the_same_hosts() -> None:
    hosts = tuple(f"gpu-{number:02d}" for number in (*range(1, 65), 70))
    assert host_list(hosts) == "gpu-[01-64,70]"
    assert expand([host_list(hosts)]) == hosts


def test_a_cluster_file_names_hosts_as_ranges(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text('nodes: 2\nplatform: {kind: baremetal, hosts: ["gpu-[01-02]"]}\n')
    platform = load_cluster(path).platform
    assert isinstance(platform, BaremetalPlatform)
    assert platform.hosts == ("gpu-01", "gpu-02")
