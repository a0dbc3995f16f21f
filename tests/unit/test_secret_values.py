"""Which values are known to be secret: by the names of their variables, by what they look like, in URLs."""

import os

import pytest

from seatrial.config.cluster import Cluster
from seatrial.config.run import secrets_of
from seatrial.text.redact import Secrets
from seatrial.text.secret_values import looks_secret, secrets_in


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
    monkeypatch.setenv("SEATRIAL_ALERT_URLS", "none json://alerts.example.com/hunter2 ntfys://topic")
    (clean,) = secrets_of(Cluster.model_validate(own)).out_of(["to json://alerts.example.com/hunter2 or ntfys://topic"])
    assert clean == "to *** or ***"


def test_a_secret_of_several_lines_is_found_line_by_line() -> None:
    assert secrets_in({"MY_CREDENTIALS": "first line\nthe second line"}) == ["the second line", "first line"]


def test_names_of_secrets() -> None:
    assert all(map(looks_secret, ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "wandb_api_key", "SENTRY_DSN")))
    assert not any(map(looks_secret, ("NCCL_DEBUG", "HOSTNAME", "KEYBOARD", "PATH")))


def test_values_that_look_like_a_token_are_secret_whatever_their_variable_is_called() -> None:
    tokens = {
        "MY_SETTING": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "OTHER": "0123456789abcdef0123456789abcdef",
        "LOGIN": "use hf_ABCDEFGHIJKLMNOPQRSTUV please",
    }
    assert secrets_in(tokens) == [tokens["MY_SETTING"], tokens["OTHER"], "hf_ABCDEFGHIJKLMNOPQRSTUV"]


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
def test_values_that_tell_what_happened_are_no_secrets(name: str, value: str) -> None:
    assert secrets_in({name: value}) == []


@pytest.mark.parametrize(
    ("value", "passwords"),
    [
        ("postgresql+psycopg://me:hunt3r2@db/history", ["hunt3r2"]),
        ("postgresql://me:hunter2%40home@db/history", ["hunter2%40home", "hunter2@home"]),
        ("http://me:with/a/slash@proxy:3128", ["with/a/slash"]),
        ("postgresql://db/history?user=me&password=correct%20horse&x=1", ["correct%20horse", "correct horse"]),
        ("host=db user=me password=correct-horse", ["correct-horse"]),
    ],
)
def test_passwords_in_urls_are_secret_in_every_variable(value: str, passwords: list[str]) -> None:
    assert set(secrets_in({"SEATRIAL_HISTORY": value})) == set(passwords)
