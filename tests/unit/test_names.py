"""Host ranges, lines, addresses and the names of registries."""

import re
import subprocess
from pathlib import Path

import pytest

from seatrial.config.cluster import load_cluster
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.text.addresses import is_loopback, split
from seatrial.text.hostlist import MAX_HOSTS, expand, host_list
from seatrial.text.lines import first_line, last_line, one_line


@pytest.mark.parametrize(
    ("patterns", "hosts"),
    [
        (["gpu-[01-03]"], ("gpu-01", "gpu-02", "gpu-03")),
        (["gpu-[8-10].example.com"], ("gpu-8.example.com", "gpu-9.example.com", "gpu-10.example.com")),
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
def test_what_is_no_host_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        expand([pattern])


def test_the_short_form_of_hosts_is_read_back() -> None:
    hosts = tuple(f"gpu-{number:02d}" for number in (*range(1, 65), 70))
    assert host_list(hosts) == "gpu-[01-64,70]"
    assert expand([host_list(hosts)]) == hosts


def test_a_cluster_file_names_hosts_as_ranges(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text('nodes: 2\nplatform: {kind: baremetal, hosts: ["gpu-[01-02]"]}\n')
    platform = load_cluster(path).platform
    assert isinstance(platform, BaremetalPlatform)
    assert platform.hosts == ("gpu-01", "gpu-02")


@pytest.mark.parametrize(
    ("text", "first", "last", "joined"),
    [
        ("", "", "", ""),
        (" \n\n", "", "", ""),
        ("one", "one", "one", "one"),
        ("\n  one \r\n two\n\n", "one", "two", "one two"),
    ],
)
def test_the_lines_that_are_not_empty(text: str, first: str, last: str, joined: str) -> None:
    assert (first_line(text), last_line(text), one_line(text)) == (first, last, joined)


def test_nothing_said_is_an_empty_line() -> None:
    assert first_line(None) == one_line(None) == ""
    assert one_line(0) == "0"


@pytest.mark.parametrize(
    "url",
    [
        *("", "not an address", "https://", "http://[::1", "http://a..b", f"http://{'a' * 64}.org"),
        *("http://host:99999", "http://host:0", "http://host:port"),
    ],
)
def test_no_host_that_can_be_asked_for(url: str) -> None:
    assert split(url) is None


def test_the_parts_of_an_address() -> None:
    parts = split("https://user@push.example.org:9091/x")
    assert parts is not None
    assert (parts.scheme, parts.username, parts.hostname, parts.port) == ("https", "user", "push.example.org", 9091)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_what_is_this_machine(host: str, here: bool) -> None:
    assert is_loopback(host) is here


ROOT = Path(__file__).parents[2]
# Written apart, so that this file holds none of them.
HOSTS = [
    ".".join(parts)
    for parts in [
        ("debian", "org"),
        ("debian", "net"),
        ("ubuntu", "com"),
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pypi", "nvidia", "com"),
        ("pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("nodesource", "com"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("anaconda", "org"),
        ("anaconda", "com"),
        ("download", "pytorch", "org"),
        ("packages", "cloud", "google", "com"),
    ]
]
REGISTRY = re.compile(rf"(?<![\w-])(?:[\w-]+\.)*(?:{'|'.join(map(re.escape, HOSTS))})(?![\w-])", re.IGNORECASE)


def registry_hosts(text: str) -> list[str]:
    return [match[0] for match in REGISTRY.finditer(text)]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_recognised_wherever_it_stands(host: str) -> None:
    assert registry_hosts(f"deb http://deb.{host.upper()}:80/x main") == [f"deb.{host.upper()}"]
    assert registry_hosts(f"host='{host}', lists/{host}_dists") == [host]
    assert registry_hosts(f"https://mirror.example.com/x other-{host} {host}pany") == []


def test_no_tracked_file_names_one() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    assert Path(__file__) in files
    texts = {file: file.read_bytes().decode(errors="replace") for file in files}
    named = {str(file.relative_to(ROOT)): hosts for file, text in texts.items() if (hosts := registry_hosts(text))}
    assert named == {}
