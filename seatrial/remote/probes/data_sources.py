"""The sets of images that can be trained, and the download of those that are published as files.

Copied to the nodes next to training.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from rendezvous import CannotStart

MOST_BYTES = 1 << 30  # of one file of Fashion-MNIST or CIFAR: they have 47 and 154 MB
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Archive:
    """A published file: its address, its MD5 as the publisher gives it, and where it lies in the data directory."""

    url: str
    md5: str
    path: str


@dataclass(frozen=True)
class Source:
    """A set of images: its classes, the side of an image in pixels, the folder that it is in, and what to download."""

    classes: int
    pixels: int
    folder: str
    archives: tuple[Archive, ...] = ()


_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_TORONTO = "https://www.cs.toronto.edu/~kriz"
SOURCES = {
    "fashion_mnist": Source(
        10,
        32,
        "FashionMNIST/raw",
        tuple(
            Archive(f"{_FASHION}/{name}-ubyte.gz", md5, f"FashionMNIST/raw/{name}-ubyte.gz")
            for name, md5 in (
                ("train-images-idx3", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                ("train-labels-idx1", "25c81989df183df01b3e8a0aad5dffbe"),
            )
        ),
    ),
    "cifar10": Source(
        10,
        32,
        "cifar-10-batches-py",
        (Archive(f"{_TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-python.tar.gz"),),
    ),
    "cifar100": Source(
        100,
        32,
        "cifar-100-python",
        (
            Archive(
                f"{_TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python.tar.gz"
            ),
        ),
    ),
    "imagenet": Source(1000, 224, "train"),
}


def download(name: str, directory: str) -> None:
    """Fetch what is not there yet. Raises CannotStart when that fails, or for a file with another checksum."""
    for archive in SOURCES[name].archives:
        path = Path(directory, archive.path)
        unpacked, is_tar = Path(directory, SOURCES[name].folder), archive.path.endswith(".tar.gz")
        if path.exists() or (is_tar and unpacked.is_dir()):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            _fetch(archive, partial)
            if is_tar:
                _unpack(partial, unpacked)
            partial.replace(path)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise CannotStart(f"{archive.url} cannot be downloaded to {directory}: {error}") from error
        finally:
            partial.unlink(missing_ok=True)


def _unpack(archive: Path, folder: Path) -> None:
    """The plain files of that folder of the archive; nothing else of it."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            inside, _, name = member.name.partition("/")
            content = tar.extractfile(member) if member.isfile() and inside == folder.name and "/" not in name else None
            if content and member.size <= MOST_BYTES:
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)


def _fetch(archive: Archive, path: Path) -> None:
    digest, size = hashlib.md5(usedforsecurity=False), 0
    with urllib.request.urlopen(archive.url, timeout=60) as response, path.open("xb") as file:
        while block := response.read(_READ_BYTES):
            size += len(block)
            if size > MOST_BYTES:
                raise CannotStart(f"{archive.url} has more than {MOST_BYTES} bytes")
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != archive.md5:
        raise CannotStart(f"{archive.url} has the MD5 {digest.hexdigest()}, not the published {archive.md5}")
