"""What must not leave this machine, and what must stay readable."""

import base64
import json
import logging
import os
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from seatrial.runs.progress import log_file
from seatrial.text.redact import Redactor, Secrets
from seatrial.text.secret_values import looks_secret, secrets_in


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
    (redacted,) = shown(line)
    assert redacted.startswith(name)
    assert redacted.endswith("***")


def test_everyday_words_are_left() -> None:
    lines = ["sshd: auth: publickey accepted", "Authenticated to node-1 using key", "private: network-a"]
    assert shown(*lines) == lines


def test_what_only_the_nodes_know_is_known_by_its_name() -> None:
    text = "WORD=abc and 'WORD': 'x'\nWORDLESS=no\nWORD=\nnothing\n"
    assert Secrets(names=("WORD",)).hidden_in(text) == "WORD=*** and 'WORD': '***'\nWORDLESS=no\nWORD=\nnothing\n"


def test_the_log_of_a_run_goes_without_what_is_known_to_be_secret(tmp_path: Path) -> None:
    with log_file(tmp_path / "run.log", Secrets(("s3cr3t-value",), ("LICENSE_FILE",))):
        log = logging.getLogger("seatrial.launch")
        log.warning("node-1 said: %s", "s3cr3t-value, LICENSE_FILE=27000@host")
        log.warning("curl failed", exc_info=ValueError("with s3cr3t-value"))
    text = (tmp_path / "run.log").read_text()
    assert "node-1 said: ***, LICENSE_FILE=***\n" in text
    assert "ValueError: with ***\n" in text
    assert "s3cr3t" not in text


def test_a_log_on_a_full_disk_ends_early_and_nothing_else_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_file(tmp_path / "run.log", Secrets()):
        (handler,) = (each for each in logging.getLogger("seatrial").handlers if isinstance(each, logging.FileHandler))
        assert handler.stream is not None
        os.dup2(os.open("/dev/full", os.O_WRONLY), handler.stream.fileno())
        logging.getLogger("seatrial.launch").warning("a line that finds no place")
    assert (tmp_path / "run.log").read_text() == ""
    assert "No space left" not in capsys.readouterr().err


def test_a_log_is_no_device(tmp_path: Path) -> None:
    """Who is root could lose one."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"), log_file(tmp_path / "pipe", Secrets()):
        pass
    assert (tmp_path / "pipe").is_fifo()


def test_private_keys_go_as_a_whole() -> None:
    key = ["-----BEGIN OPENSSH PRIVATE KEY-----\n", "b3BlbnNzaC1rZXk\n", "-----END OPENSSH PRIVATE KEY-----\n"]
    assert shown("before\n", *key, "after\n") == ["before\n", "*** a private key ***\n", "after\n"]


ENDLESS = (
    *(
        "eyJ",
        "-eyJ",
        "eyJaaaaaaaaaa.",
        "a=",
        "://",
        "x://",
        "x://a:",
        "x://a:b@",
        "https://aaaaaaaaaaaaaaaaaaaa",
        "a",
        " ",
    ),
    *(
        '"',
        "'",
        "token",
        "token=",
        "token ",
        'token"   =   ',
        "TOKEN_",
        "A_KEY",
        "A_AUTH-",
        "AUTH",
        "_pass ",
        "LICENSE_FILE",
    ),
    *(
        "authorization:",
        "authorization: ",
        "bearer ",
        "hf_",
        "sk-",
        "-sk-",
        "xox",
        "PRIVATE KEY",
        "-----BEGIN PRIVATE KEY",
    ),
    *("s3cr3t-valu", "s3cr3t-", "%2", "1", "1.", "1e"),
)


@pytest.mark.parametrize("piece", ENDLESS)
def test_one_endless_line_takes_linear_time(piece: str) -> None:
    """Half a million characters take a quarter of a second of an idle machine; what is quadratic takes hours."""
    known, text = Secrets(("s3cr3t-value",), ("LICENSE_FILE",)), (piece * 500_000)[:500_000]
    started = time.thread_time()
    assert list(known.out_of([text]))
    known.out_of_text(text)
    assert time.thread_time() - started < 5


SECRET = 's3cr3t/v+lue=of the"site"'


@pytest.mark.parametrize(
    "printed",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d").replace("%22", "%22"),
        json.dumps({"key": SECRET}),
    ],
)
def test_a_known_secret_is_found_as_it_is_written_in_urls_and_json(printed: str) -> None:
    (left,) = shown(f"got {printed} here", secrets=(SECRET,))
    assert left.startswith("got ")
    assert left.endswith(" here")
    assert "***" in left
    assert "lue" not in left


@pytest.mark.parametrize("before", ["", "u", "me", "me:", "user:"])
@pytest.mark.parametrize("after", ["", "a", "ab", "abc"])
def test_a_known_secret_is_found_in_base64_wherever_it_begins(before: str, after: str) -> None:
    data = f"{before}{SECRET}{after}".encode()
    for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
        for printed in (encode(data).decode(), encode(data).decode().rstrip("=")):
            (left,) = shown(f"got {printed} here", secrets=(SECRET,))
            around = left.removeprefix("got ").removesuffix(" here").split("***")
            assert len(around) == 2
            # What stays was made of the text around the secret, and of less than one byte of each of its ends.
            assert len(around[0]) <= (len(before) * 8 + 7) // 6 + 1
            assert len(around[1].rstrip("=")) <= (len(after) * 8 + 7) // 6 + 1


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_secret_that_arrives_in_pieces_is_found(cut: int) -> None:
    redactor = Redactor(Secrets(("s3cr3t-value",)))
    pieces = [
        redactor.feed(f"a {'s3cr3t-value'[:cut]}"),
        redactor.feed(f"{'s3cr3t-value'[cut:]} b\nlast"),
        redactor.end(),
    ]
    assert pieces == ["", "a *** b\n", "last"]


@pytest.mark.parametrize("filling", ["x", "x "])
def test_a_secret_within_a_line_that_never_ends_is_found_wherever_it_falls(filling: str) -> None:
    """The line is written in parts, so memory is bounded; no part ends within a secret."""
    secrets = Secrets(("s3cr3t-value",))
    for start in range(64 * 1024 - 16, 64 * 1024 + 32):
        redactor = Redactor(secrets)
        text = (filling * start)[:start] + "s3cr3t-value" + filling * 40_000
        redacted = "".join(redactor.feed(text[at : at + 16_384]) for at in range(0, len(text), 16_384)) + redactor.end()
        assert redacted == text.replace("s3cr3t-value", "***")


def test_of_a_line_that_never_ends_little_waits() -> None:
    redactor = Redactor(Secrets(("s3cr3t-value",)))
    length = sum(len(redactor.feed("x" * 65_536)) for _ in range(100))
    assert length > 98 * 65_536


def test_the_first_line_of_a_private_key_does_not_hide_a_whole_log() -> None:
    lines = ["-----BEGIN PRIVATE KEY-----\n", *(f"line {number}\n" for number in range(1000))]
    left = shown(*lines)
    assert left[0] == "*** a private key ***\n"
    assert left[-1] == "line 999\n"
    assert "".join(left) == Secrets().out_of_text("".join(lines))


def test_a_thousand_secrets_are_looked_for_at_once() -> None:
    values = tuple(f"secret-{number:06}-of-many" for number in range(1000))
    (left,) = shown(f"first {values[0]}, last {values[-1]}, none secret-001000-of-many", secrets=values)
    assert left == "first ***, last ***, none secret-001000-of-many"


@pytest.mark.parametrize("line", ['{"tokens_per_s": 12345.67}', '{"tokens_per_s": 1.234567e+05, "step": 3}'])
def test_numbers_in_compact_json_stay(line: str) -> None:
    assert shown(line) == [line]
