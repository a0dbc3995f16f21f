"""Where to upload to: what is legal, and what this machine lacks for it."""

from pathlib import Path

import pytest

from seatrial.config import cluster
from seatrial.config.cluster import load_cluster
from seatrial.model.errors import InputError


def cluster_file(tmp_path: Path, lines: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(f"nodes: 2\nplatform: {{kind: local}}\n{lines}\n")
    return path


@pytest.mark.parametrize(
    "url",
    [
        "gs://bucket/testbed-logs",
        "s3://bucket",
        "abfs://container@account.dfs.core.windows.net/logs",
        "file:///srv/logs",
        "memory://bucket/logs",
        "sftp://host/srv/logs",
    ],
)
def test_legal_addresses(tmp_path: Path, url: str) -> None:
    assert load_cluster(cluster_file(tmp_path, f"upload: {url}/")).upload == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("gcs2://bucket", r"unknown protocol 'gcs2'; legal: .*\bgs\b.*\bs3\b"),
        ("/srv/logs", r"must be the URL of a folder, such as gs://bucket/testbed-logs, is '/srv/logs'"),
        ("gs://", r"must name a bucket or folder behind gs://"),
        ("file://srv/logs", r"must be file:// and a full path"),
        ("file://", r"must be file:// and a full path"),
        ("ftp://me:pass@host/logs", r"must not hold a login"),
        ("simplecache::gs://bucket/logs", r"must be the URL of a folder"),
    ],
)
def test_others_are_one_line_with_what_is_legal(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"c\.yaml: upload: {message}") as refused:
        load_cluster(cluster_file(tmp_path, f"upload: {url}"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("keep: sometimes", r"keep: .*'never', 'on_failure' or 'always'"),
        ("keep_s: 0", r"keep_s: .*greater than 0"),
        ("keep_s: 1000000", r"keep_s: .*less than or equal to 604800"),
    ],
)
def test_keeping_has_bounds(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_cluster(cluster_file(tmp_path, line))


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda _: None)
    message = cluster.missing_package("gs://bucket/logs")
    assert message
    assert "gcsfs is not installed, which gs:// needs: " in message
    assert message.endswith("-m pip install gcsfs")


def test_what_comes_with_fsspec_is_there() -> None:
    assert cluster.missing_package("file:///srv/logs") is None
    assert cluster.missing_package("memory://bucket") is None
