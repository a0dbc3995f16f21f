"""What must not leave this machine, and what must stay readable."""

import logging
import os
import time
from pathlib import Path

import pytest

from seatrial.cluster import Cluster
from seatrial.progress import log_file
from seatrial.redact import Secrets, looks_secret, secrets_in
from seatrial.run import secrets_of


def shown(*lines: str, secrets: tuple[str, ...] = ()) -> list[str]:
    return list(Secrets(secrets).out_of(lines))


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("export HF_TOKEN=abcdefgh12345678 and on", "export HF_TOKEN=*** and on"),
        ('{"api_key": "abcdefgh12345678"}', '{"api_key": "***"}'),
        ("db_password: hunter2hunter2", "db_password: ***"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("sent with bearer abcdefghijklmnop1234", "sent with bearer ***"),
        ("clone https://me:s3cret@example.com/x", "clone https://me:***@example.com/x"),
        ("login with hf_ABCDEFGHIJKLMNOPQRSTUV done", "login with *** done"),
        ("key AKIAABCDEFGHIJKLMNOP", "key ***"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abc_def", "jwt ***"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(line: str, left: str) -> None:
    assert shown(line) == [left]


@pytest.mark.parametrize(
    "line",
    [
        "tokens_per_s: 12345678.9 over 8 ranks",
        "#  out-of-place  in-place",
        "Accepted publickey for root from 10.0.0.1 port 51234 ssh2: ED25519 SHA256:" + "a" * 43,
        "2026-11-21 15:44:02,123 INFO seatrial.launch: run 20261121-1544-4b688: 2 nodes, head node-0 (10.77.0.2)",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE ; OOB eth0:10.0.0.1<0>",
        '{"message_bytes": 8388608, "dtype": "float32"}',
        "gs://bucket/testbed-logs/run/nccl-test-results.txt",
    ],
)
def test_what_tells_what_happened_stays(line: str) -> None:
    assert shown(line) == [line]


def test_known_secrets_go_wherever_they_stand() -> None:
    secrets = secrets_in({"SLACK_WEBHOOK": "https://hooks/T0/B0/x", "HOME": "/root/elsewhere", "A_TOKEN": "short"})
    assert secrets == ["https://hooks/T0/B0/x"]  # what is short would be found in harmless text
    assert shown("post https://hooks/T0/B0/x now", secrets=tuple(secrets)) == ["post *** now"]


@pytest.mark.parametrize(
    "line", ["SIGNING_KEY=abcdefgh1", "SENTRY_DSN=https://a/b", "REGISTRY_AUTH: abcdefgh1", "MY_PRIVATE=abcdefgh1"]
)
def test_every_name_of_a_variable_that_looks_secret_hides_its_value(line: str) -> None:
    name = line.replace("=", ":").partition(":")[0]
    assert looks_secret(name)
    (said,) = shown(line)
    assert said.startswith(name)
    assert said.endswith("***")


def test_everyday_words_are_left() -> None:
    lines = ["sshd: auth: publickey accepted", "Authenticated to node-1 using key", "private: network-a"]
    assert shown(*lines) == lines


def test_what_only_the_nodes_know_is_known_by_its_name() -> None:
    said = "WORD=abc and 'WORD': 'x'\nWORDLESS=no\nWORD=\nnothing\n"
    assert Secrets(names=("WORD",)).hidden_in(said) == "WORD=*** and 'WORD': '***'\nWORDLESS=no\nWORD=\nnothing\n"


def test_what_is_secret_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SITE_TOKEN", "known-to-the-site")
    monkeypatch.setenv("HOME", "/home/somebody")
    secret = {"name": "LICENSE_FILE", "secret": "license", "key": "file"}
    platform = {"kind": "kubernetes", "secret_env": [secret]}
    fields = {"name": "c", "nodes": 2, "image": "registry.example.com/x:1", "env": {"NCCL_DEBUG": "INFO-of-NCCL"}}
    assert secrets_of(Cluster.model_validate({**fields, "platform": platform})) == Secrets(
        ("known-to-the-site",), ("LICENSE_FILE",)
    )
    own = {"name": "c", "nodes": 2, "platform": {"kind": "local"}, "env": {"MY_API_KEY": "known-to-the-nodes"}}
    assert secrets_of(Cluster.model_validate(own)) == Secrets(("known-to-the-nodes", "known-to-the-site"))


def test_the_log_of_a_run_goes_without_what_is_known_to_be_secret(tmp_path: Path) -> None:
    with log_file(tmp_path / "run.log", Secrets(("s3cr3t-value",), ("LICENSE_FILE",))):
        log = logging.getLogger("seatrial.launch")
        log.warning("node-1 said: %s", "s3cr3t-value, LICENSE_FILE=27000@host")
        log.warning("curl failed", exc_info=ValueError("with s3cr3t-value"))
    said = (tmp_path / "run.log").read_text()
    assert "node-1 said: ***, LICENSE_FILE=***\n" in said
    assert "ValueError: with ***\n" in said
    assert "s3cr3t" not in said


def test_a_log_on_a_full_disk_ends_early_and_nothing_else_does(capsys: pytest.CaptureFixture[str]) -> None:
    with log_file(Path("/dev/full"), Secrets()):
        logging.getLogger("seatrial.launch").warning("a line that finds no place")
    assert "No space left" not in capsys.readouterr().err


def test_a_secret_of_several_lines_is_found_line_by_line() -> None:
    assert secrets_in({"MY_CREDENTIALS": "first line\nthe second line"}) == ["the second line", "first line"]


def test_private_keys_go_as_a_whole() -> None:
    key = ["-----BEGIN OPENSSH PRIVATE KEY-----\n", "b3BlbnNzaC1rZXk\n", "-----END OPENSSH PRIVATE KEY-----\n"]
    assert shown("before\n", *key, "after\n") == ["before\n", "*** a private key ***\n", "after\n"]


def test_names_of_secrets() -> None:
    assert all(map(looks_secret, ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "wandb_api_key", "SENTRY_DSN")))
    assert not any(map(looks_secret, ("NCCL_DEBUG", "HOSTNAME", "KEYBOARD", "PATH")))


@pytest.mark.parametrize("text", ["a" * 300_000, "token" * 60_000, "x://" * 75_000, "eyJ" * 100_000, "token=" * 50_000])
def test_one_endless_line_takes_no_endless_time(text: str) -> None:
    started = time.monotonic()
    assert shown(text)
    assert time.monotonic() - started < 5
