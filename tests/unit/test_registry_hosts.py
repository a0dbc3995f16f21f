"""No host of a package registry stands in the tree: packages come from where each machine gets its
own.
"""

import re
import subprocess
from pathlib import Path

import pytest

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
REGISTRY = re.compile(
    rf"(?<![\w-])(?:[\w-]+\.)*(?:{'|'.join(map(re.escape, HOSTS))})(?![\w-])", re.IGNORECASE
)


def registry_hosts(text: str) -> list[str]:
    return [match[0] for match in REGISTRY.finditer(text)]


@pytest.mark.parametrize("host", HOSTS)
def test_registry_host_is_recognised_anywhere_in_a_text(host: str) -> None:
    assert registry_hosts(f"deb http://deb.{host.upper()}:80/x main") == [f"deb.{host.upper()}"]
    assert registry_hosts(f"host='{host}', lists/{host}_dists") == [host]
    assert registry_hosts(f"https://mirror.example.com/x other-{host} {host}pany") == []


def test_no_tracked_file_names_a_package_registry_host() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    files = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    assert Path(__file__) in files
    texts = {file: file.read_bytes().decode(errors="replace") for file in files}
    named = {
        str(file.relative_to(ROOT)): hosts
        for file, text in texts.items()
        if (hosts := registry_hosts(text))
    }
    assert named == {}
