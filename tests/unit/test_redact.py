"""What must not leave this machine, and what must stay readable."""

import base64
import json
import logging
import os
import re
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from seatrial.config.cluster import Cluster
from seatrial.config.run import secrets_of
from seatrial.runs.progress import log_file
from seatrial.text import redact
from seatrial.text.redact import Redactor, Secrets, looks_secret, secrets_in


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
        ("SIGNING_KEY=abcdefgh1", "SIGNING_KEY=***"),
        ("SENTRY_DSN=https://a/b", "SENTRY_DSN=***"),
        ("REGISTRY_AUTH: abcdefgh1", "REGISTRY_AUTH: ***"),
        ("MY_PRIVATE=abcdefgh1", "MY_PRIVATE=***"),
    ],
)
def test_text_that_looks_like_a_secret_is_redacted(line: str, left: str) -> None:
    assert shown(line) == [left]


@pytest.mark.parametrize(
    "line",
    [
        "tokens_per_s: 12345678.9 over 8 ranks",
        "#  out-of-place  in-place",
        "Accepted publickey for root from 10.0.0.1 port 51234 ssh2: ED25519 SHA256:" + "a" * 43,
        (
            "2026-11-21 15:44:02,123 INFO seatrial.launch: run 20261121-1544-4b688: 2 nodes, "
            "head node-0 (10.77.0.2)"
        ),
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE ; OOB eth0:10.0.0.1<0>",
        '{"message_bytes": 8388608, "dtype": "float32"}',
        "gs://bucket/testbed-logs/run/nccl-test-results.txt",
        "sshd: auth: publickey accepted",
        "Authenticated to node-1 using key",
        "private: network-a",
        '{"tokens_per_s": 12345.67}',
        '{"tokens_per_s": 1.234567e+05, "step": 3}',
    ],
)
def test_ordinary_log_text_is_not_redacted(line: str) -> None:
    assert shown(line) == [line]


def test_known_secret_values_are_redacted_anywhere() -> None:
    secrets = secrets_in(
        {"SLACK_WEBHOOK": "https://hooks/T0/B0/x", "HOME": "/root/elsewhere", "A_TOKEN": "short"}
    )
    assert secrets == ["https://hooks/T0/B0/x"]  # what is short would be found in harmless text
    assert shown("post https://hooks/T0/B0/x now", secrets=tuple(secrets)) == ["post *** now"]


def test_secret_known_only_to_nodes_is_redacted_by_its_variable_name() -> None:
    text = "WORD=abc and 'WORD': 'x'\nWORDLESS=no\nWORD=\nnothing\n"
    assert (
        Secrets(names=("WORD",)).hidden_in(text)
        == "WORD=*** and 'WORD': '***'\nWORDLESS=no\nWORD=\nnothing\n"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A=WORD=12345", "A=WORD=***"),
        ("config.WORD: x y", "config.WORD: *** y"),
        ("--WORD=x", "--WORD=***"),
        ("PASSWORD=x", "PASSWORD=x"),
        ("WORD=OTHER=1 OTHER=2", "WORD=*** OTHER=***"),
    ],
)
def test_secret_variable_is_redacted_behind_other_names(text: str, shown: str) -> None:
    assert Secrets(names=("WORD", "OTHER")).hidden_in(text) == shown


def test_redaction_pattern_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all texts."""
    made: list[int] = []
    make = redact._any_of

    def counted(values: tuple[str, ...]) -> re.Pattern[str] | None:
        made.append(len(values))
        return make(values)

    monkeypatch.setattr(redact, "_any_of", counted)
    secrets = Secrets(tuple(f"secret-{number:04d}" for number in range(100)), ("NAME",))
    shown = [secrets.out_of_text(f"a {value} NAME=x") for value in secrets.values]
    assert set(shown) == {"a *** NAME=***"}
    assert made == [100]


def test_a_log_on_a_full_disk_ends_early_and_nothing_else_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_file(tmp_path / "run.log", Secrets()):
        (handler,) = (
            each
            for each in logging.getLogger("seatrial").handlers
            if isinstance(each, logging.FileHandler)
        )
        assert handler.stream is not None
        os.dup2(os.open("/dev/full", os.O_WRONLY), handler.stream.fileno())
        logging.getLogger("seatrial.launch").warning("a line that finds no place")
    assert (tmp_path / "run.log").read_text() == ""
    assert "No space left" not in capsys.readouterr().err


def test_private_keys_are_redacted_completely() -> None:
    key = [
        "-----BEGIN OPENSSH PRIVATE KEY-----\n",
        "b3BlbnNzaC1rZXk\n",
        "-----END OPENSSH PRIVATE KEY-----\n",
    ]
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
    ),
    *(
        " ",
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
    ),
    *(
        "LICENSE_FILE",
        "authorization:",
        "authorization: ",
        "bearer ",
        "hf_",
        "sk-",
        "-sk-",
        "xox",
        "PRIVATE KEY",
    ),
    *("-----BEGIN PRIVATE KEY", "s3cr3t-valu", "s3cr3t-", "%2", "1", "1.", "1e"),
)


@pytest.mark.parametrize("piece", ENDLESS)
def test_one_endless_line_takes_linear_time(piece: str) -> None:
    """200,000 characters take 0.1 s of an idle machine; what is quadratic takes hours."""
    known, text = Secrets(("s3cr3t-value",), ("LICENSE_FILE",)), (piece * 200_000)[:200_000]
    started = time.thread_time()
    assert list(known.out_of([text]))
    known.out_of_text(text)
    assert time.thread_time() - started < 2


SECRET = 's3cr3t/v+lue=of the"site"'


@pytest.mark.parametrize(
    "printed",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower(),
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
            # What stays was made of the text around the secret, and of less than one byte of each
            # of its ends.
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
        redacted = (
            "".join(redactor.feed(text[at : at + 16_384]) for at in range(0, len(text), 16_384))
            + redactor.end()
        )
        assert redacted == text.replace("s3cr3t-value", "***")


def test_redactor_holds_back_little_of_an_endless_line() -> None:
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
    (left,) = shown(
        f"first {values[0]}, last {values[-1]}, none secret-001000-of-many", secrets=values
    )
    assert left == "first ***, last ***, none secret-001000-of-many"


# Which values are known to be secret: by the names of their variables, by what they look like, in
# URLs.


def test_secrets_of_a_cluster_are_collected_from_environment_and_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SITE_TOKEN", "known-to-the-site")
    monkeypatch.setenv("HOME", "/home/somebody")
    secret = {"name": "LICENSE_FILE", "secret": "license", "key": "file"}
    platform = {"kind": "kubernetes", "secret_env": [secret]}
    fields = {
        "name": "c",
        "nodes": 2,
        "image": "registry.example.com/x:1",
        "env": {"NCCL_DEBUG": "INFO-of-NCCL"},
    }
    assert secrets_of(Cluster.model_validate({**fields, "platform": platform})) == Secrets(
        ("known-to-the-site",), ("LICENSE_FILE",)
    )
    own = {
        "name": "c",
        "nodes": 2,
        "platform": {"kind": "local"},
        "env": {"MY_API_KEY": "known-to-the-nodes"},
    }
    assert secrets_of(Cluster.model_validate(own)) == Secrets(
        ("known-to-the-nodes", "known-to-the-site")
    )
    monkeypatch.setenv(
        "SEATRIAL_ALERT_URLS", "none json://alerts.example.com/hunter2 ntfys://topic"
    )
    (clean,) = secrets_of(Cluster.model_validate(own)).out_of(
        ["to json://alerts.example.com/hunter2 or ntfys://topic"]
    )
    assert clean == "to *** or ***"


def test_a_secret_of_several_lines_is_found_line_by_line() -> None:
    assert secrets_in({"MY_CREDENTIALS": "first line\nthe second line"}) == [
        "the second line",
        "first line",
    ]


def test_names_of_variables_show_which_are_secret() -> None:
    assert all(
        map(looks_secret, ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "wandb_api_key", "SENTRY_DSN"))
    )
    assert not any(map(looks_secret, ("NCCL_DEBUG", "HOSTNAME", "KEYBOARD", "PATH")))


def test_values_that_look_like_a_token_are_secret_whatever_their_variable_is_called() -> None:
    tokens = {
        "MY_SETTING": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "OTHER": "0123456789abcdef0123456789abcdef",
        "LOGIN": "use hf_ABCDEFGHIJKLMNOPQRSTUV please",
    }
    assert secrets_in(tokens) == [
        tokens["MY_SETTING"],
        tokens["OTHER"],
        "hf_ABCDEFGHIJKLMNOPQRSTUV",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOSTNAME", "gke-cluster-Pool-1a2B3c4D5e6F-x1Yz"),
        ("GITHUB_SHA", "0123456789abcdef0123456789abcdef01234567"),
        ("BUILD_TAG", "jenkins-Build-Main-12345678"),
        ("NCCL_DEBUG_FILE", "/tmp/nccl-%h-%p.log"),
        ("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"),
        ("LS_COLORS", "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33"),
        ("PROXY", "http://proxy.example.com:3128"),
        ("DATABASE", "postgresql://postgres:postgres@db/history"),
        ("SSH_AUTH", "required"),
    ],
)
def test_harmless_variables_are_not_taken_for_secrets(name: str, value: str) -> None:
    assert secrets_in({name: value}) == []


@pytest.mark.parametrize(
    ("value", "passwords"),
    [
        ("postgresql+psycopg://me:hunt3r2@db/history", ["hunt3r2"]),
        ("postgresql://me:hunter2%40home@db/history", ["hunter2%40home", "hunter2@home"]),
        ("http://me:with/a/slash@proxy:3128", ["with/a/slash"]),
        (
            "postgresql://db/history?user=me&password=correct%20horse&x=1",
            ["correct%20horse", "correct horse"],
        ),
        ("host=db user=me password=correct-horse", ["correct-horse"]),
    ],
)
def test_passwords_in_urls_are_secret_in_every_variable(value: str, passwords: list[str]) -> None:
    assert set(secrets_in({"SEATRIAL_HISTORY": value})) == set(passwords)


@pytest.mark.parametrize("password", ["hunter22", "hunte2", "unicorns"])
def test_the_shortest_passwords_of_urls_are_secrets(password: str) -> None:
    assert secrets_in({"WHERE": f"redis://someone:{password}@cache.example.com/0"}) == [password]
