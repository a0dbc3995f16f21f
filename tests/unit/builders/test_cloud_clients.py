"""Who gets the token of the account that builds."""

import pytest

from seatrial.builders.cloud_build import GoogleClients


class Account:
    """An account that needs nobody to be refreshed."""

    token = "token"

    def refresh(self, request: object) -> None:
        pass


@pytest.mark.parametrize(
    ("registry", "gets_it"),
    [
        ("gcr.io", True),
        ("eu.gcr.io", True),
        ("us-docker.pkg.dev", True),
        ("notgcr.io", False),
        ("notpkg.dev", False),
        ("gcr.io.example.com", False),
        ("registry-1.docker.io", False),
    ],
)
def test_only_googles_registries_get_the_token(
    registry: str, gets_it: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path_factory.mktemp("docker")))
    monkeypatch.setattr(GoogleClients, "_credentials", Account())
    assert GoogleClients("p").registry_login(registry) == (("oauth2accesstoken", "token") if gets_it else None)
