"""Look into every layer of an image for what must not be there: a file that a later layer deletes
is still shipped.
"""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# The line and what follows it: programs that read keys hold the line alone.
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN ([A-Z ]+ )?PRIVATE KEY-----\r?\n([A-Za-z0-9+/=]{20}|Proc-Type)"
)
_TOKENS = re.compile(
    rb"(?<![A-Za-z0-9])(hf_[A-Za-z0-9]{34}|gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{50}|glpat-[\w-]{20}"
    rb"|AKIA[0-9A-Z]{16}|xox[abprs]-\d{6,}-[\w-]{10,}|AIza[\w-]{35}|nvapi-[\w-]{40})(?![A-Za-z0-9])"
)
_NAMES = re.compile(
    r"(^|/)(ssh_host_\w+_key|id_(rsa|dsa|ecdsa|ed25519)|\.netrc|\.git-credentials|\.npmrc|\.pypirc|\.bash_history)$"
    r"|(^|/)\.ssh/(authorized_keys|known_hosts|config)$|(^|/)\.(docker|config/gcloud|aws|kube)/."
)
# Published keys that these libraries test themselves with
_SELF_TESTS = re.compile(r"/lib(gnutls|mbedcrypto)\.so\.[\d.]+$")
_CLUTTER = re.compile(r"^var/(lib/apt/lists|cache/apt)/.*\S|^root/\.cache/.|\.deb$|\.whl$")
_NO_PASSWORD = {"", "*", "!", "!*", "!!"}


def findings(archive: Path) -> list[str]:
    """What is wrong with an image saved as docker-archive, "LAYER: FILE: WHAT" each."""
    return [
        f"{layer}: {name}: {problem}"
        for layer, file in _layers(archive)
        for name, problem in look(file)
    ]


def sizes(archive: Path) -> list[tuple[str, int]]:
    """Each layer's command and bytes, the lowest first."""
    with tarfile.open(archive) as image:
        manifest, config = _describe(image)
        history = [step["created_by"] for step in config["history"] if not step.get("empty_layer")]
        return list(
            zip(history, (image.getmember(layer).size for layer in manifest["Layers"]), strict=True)
        )


def settings(archive: Path) -> str:
    """The image's configuration, with environment and history, as text."""
    with tarfile.open(archive) as image:
        return json.dumps(_describe(image)[1])


def look(layer: IO[bytes]) -> Iterator[tuple[str, str]]:
    """(file, what is wrong with it) for one layer."""
    with tarfile.open(fileobj=layer) as files:
        for member in files:
            if not member.isfile():
                continue
            name = member.name.removeprefix("./")
            content = files.extractfile(member)
            assert content is not None
            yield from ((name, problem) for problem in _problems(name, content.read()))


def _problems(name: str, content: bytes) -> Iterator[str]:
    if _NAMES.search(name) and content:
        yield "a file of keys or credentials"
    if _CLUTTER.search(name) and content:
        yield "a package list, download or cache"
    if _PRIVATE_KEY.search(content) and not _SELF_TESTS.search(name):
        yield "a private key"
    if token := _TOKENS.search(content):
        yield f"looks like a token: {token[0][:8].decode()}..."
    if name in ("etc/shadow", "etc/shadow-", "etc/gshadow"):
        for line in content.decode().splitlines():
            account, password, *_ = line.split(":")
            if password not in _NO_PASSWORD or (
                not password and not name.startswith("etc/gshadow")
            ):
                yield f"{account} has a password, or may come in without one"
    if name == "etc/machine-id" and content.strip():
        yield "a machine id, the same in every copy"


def _layers(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as image:
        for number, layer in enumerate(_describe(image)[0]["Layers"]):
            file = image.extractfile(layer)
            assert file is not None
            yield f"layer {number}", file


def _describe(
    image: tarfile.TarFile,
) -> tuple[dict[str, list[str]], dict[str, list[dict[str, str]]]]:
    manifest = json.load(_open(image, "manifest.json"))[0]
    return manifest, json.load(_open(image, manifest["Config"]))


def _open(image: tarfile.TarFile, name: str) -> IO[bytes]:
    file = image.extractfile(name)
    assert file is not None
    return file
