import pytest

from seatrial.text.addresses import is_loopback, split


@pytest.mark.parametrize(
    "url",
    [
        *("", "not an address", "https://", "http://[::1", "http://a..b", f"http://{'a' * 64}.org"),
        *("http://host:99999", "http://host:0", "http://host:port"),
    ],
)
def test_url_without_a_valid_host_and_port_is_rejected(url: str) -> None:
    assert split(url) is None


def test_url_is_split_into_scheme_user_host_and_port() -> None:
    parts = split("https://user@push.example.org:9091/x")
    assert parts is not None
    assert (parts.scheme, parts.username, parts.hostname, parts.port) == (
        "https",
        "user",
        "push.example.org",
        9091,
    )


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
def test_loopback_addresses_are_recognised(host: str, here: bool) -> None:
    assert is_loopback(host) is here
