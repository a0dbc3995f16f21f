"""Images to train with, read from a local directory in the formats that they are published in.

`fashion_mnist`: two IDX files, gzipped or not. `cifar10`, `cifar100`: pickles of Python 2, of which
nothing but bytes and lists is taken. `imagenet`: a folder per class, also below `train`. Copied to
the nodes next to training.py; needs torch, and Pillow for folders of images.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import pickle
import shutil
import struct
import tarfile
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rendezvous import CannotStart
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import Dataset, TensorDataset

MOST_BYTES = 1 << 30  # most bytes of one file of Fashion-MNIST or CIFAR, which have 47 and 154 MB
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_TORONTO = "https://www.cs.toronto.edu/~kriz"
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


@dataclass(frozen=True)
class Archive:
    """A published file: its URL, its MD5 as published, and its path in the data directory."""

    url: str
    md5: str
    path: str


@dataclass(frozen=True)
class Source:
    """A set of images: its classes, the side of an image in pixels, its folder, and the files to
    download.
    """

    classes: int
    pixels: int
    folder: str
    archives: tuple[Archive, ...] = ()


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
        (
            Archive(
                f"{_TORONTO}/cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
                "cifar-10-python.tar.gz",
            ),
        ),
    ),
    "cifar100": Source(
        100,
        32,
        "cifar-100-python",
        (
            Archive(
                f"{_TORONTO}/cifar-100-python.tar.gz",
                "eb9058c3a382ffc7106e4002c42a8d85",
                "cifar-100-python.tar.gz",
            ),
        ),
    ),
    "imagenet": Source(1000, 224, "train"),
}


def download(name: str, directory: str) -> None:
    """Download the missing files of a set.

    Raises CannotStart if that fails, or for a file with another checksum.
    """
    for archive in SOURCES[name].archives:
        path = Path(directory, archive.path)
        unpacked = Path(directory, SOURCES[name].folder)
        is_tar = archive.path.endswith(".tar.gz")
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
            raise CannotStart(
                f"{archive.url} cannot be downloaded to {directory}: {error}"
            ) from error
        finally:
            partial.unlink(missing_ok=True)


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack only the plain files in that folder of the archive."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            inside, _, name = member.name.partition("/")
            content = (
                tar.extractfile(member)
                if member.isfile() and inside == folder.name and "/" not in name
                else None
            )
            if content and member.size <= MOST_BYTES:
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)


def _fetch(archive: Archive, path: Path) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    with urllib.request.urlopen(archive.url, timeout=60) as response, path.open("xb") as file:
        while block := response.read(1 << 20):
            size += len(block)
            if size > MOST_BYTES:
                raise CannotStart(f"{archive.url} has more than {MOST_BYTES} bytes")
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != archive.md5:
        raise CannotStart(
            f"{archive.url} has the MD5 {digest.hexdigest()}, not the published {archive.md5}"
        )


class ImageFiles(Dataset):
    """Image files with their classes, as a dataset; each image is cropped to the central square of
    `pixels`.
    """

    def __init__(self, files: Sequence[tuple[str, int]], pixels: int) -> None:
        self.files = files
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index]
        return square(path, self.pixels), label


def open_dataset(name: str, directory: str, pixels: int) -> Dataset:
    """Return the training images of that name below `directory`.

    Raises CannotStart for a file that is missing or broken.
    """
    source = SOURCES[name]
    hint = "; --download fetches it" if source.archives else ""
    if not os.path.isdir(directory):
        raise CannotStart(f"{name}: there is no directory {directory}{hint}")
    inside = os.path.join(directory, source.folder)
    folder = inside if os.path.isdir(inside) else directory
    try:
        if name == "fashion_mnist":
            return _fashion_mnist(folder)
        if name == "imagenet":
            return _image_folder(folder, pixels, source.classes)
        files = [f"data_batch_{part}" for part in range(1, 6)] if name == "cifar10" else ["train"]
        return _cifar(folder, files, source.classes)
    except FileNotFoundError as missing:
        raise CannotStart(f"{name}: {missing.filename} is missing{hint}") from missing
    except OSError as error:
        raise CannotStart(f"{name}: {error}") from error


def as_inputs(images: Tensor, pixels: int) -> Tensor:
    """Convert images of unsigned bytes (batch, 1 or 3, height, width) to a ResNet's (batch, 3,
    pixels, pixels).
    """
    inputs = images.float().div_(127.5).sub_(1.0)
    if inputs.shape[-1] != pixels or inputs.shape[-2] != pixels:
        inputs = interpolate(inputs, size=(pixels, pixels), mode="bilinear")
    return inputs.expand(-1, 3, -1, -1)


def _fashion_mnist(folder: str) -> TensorDataset:
    images = read_idx(_either(folder, "train-images-idx3-ubyte"))
    labels = read_idx(_either(folder, "train-labels-idx1-ubyte"))
    if images.dim() != 3 or labels.dim() != 1 or len(images) != len(labels):
        raise CannotStart(
            f"{folder}: {tuple(images.shape)} images and {tuple(labels.shape)} labels do "
            "not fit together"
        )
    return TensorDataset(images[:, None], _labels(folder, labels, SOURCES["fashion_mnist"].classes))


def _either(folder: str, name: str) -> str:
    """Return the file, or the gzipped one if only that exists."""
    path = os.path.join(folder, name)
    return f"{path}.gz" if not os.path.exists(path) and os.path.exists(f"{path}.gz") else path


def read_idx(path: str) -> Tensor:
    """Return the array of unsigned bytes in an IDX file (http://yann.lecun.com/exdb/mnist/).

    Raises CannotStart, OSError.
    """
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        try:
            magic = file.read(4)
            # 8 stands for unsigned bytes
            if len(magic) < 4 or magic[:3] != b"\0\0\x08" or not 1 <= magic[3] <= 4:
                raise CannotStart(f"{path} is no IDX file of unsigned bytes")
            header = file.read(4 * magic[3])
            if len(header) < 4 * magic[3]:
                raise CannotStart(f"{path} is truncated: it ends in its header")
            shape = struct.unpack(f">{magic[3]}I", header)
            size = math.prod(shape)
            if not 0 < size <= MOST_BYTES:
                raise CannotStart(f"{path} is broken: its header promises an array of {shape}")
            content = file.read(size + 1)  # to the end: a gzipped file has its checksum there
        except (EOFError, zlib.error) as error:
            raise CannotStart(f"{path} is truncated or broken: {error}") from error
    if len(content) != size:
        count = "more than" if len(content) > size else f"{len(content)} of"
        raise CannotStart(f"{path} is truncated or broken: {count} {size} bytes are there")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(shape)


def _labels(path: str, labels: Tensor, classes: int) -> Tensor:
    if not len(labels) or int(labels.max()) >= classes or int(labels.min()) < 0:
        raise CannotStart(f"{path}: its labels are not those of {classes} classes")
    return labels.long()


def _cifar(folder: str, names: Sequence[str], classes: int) -> TensorDataset:
    images = []
    labels = []
    for name in names:
        path = os.path.join(folder, name)
        images_of_file, labels_of_file = read_cifar(path)
        images.append(images_of_file)
        labels.append(_labels(path, labels_of_file, classes))
    return TensorDataset(torch.cat(images), torch.cat(labels))


def read_cifar(path: str) -> tuple[Tensor, Tensor]:
    """Return images (N, 3, 32, 32) of unsigned bytes and classes (N) in a CIFAR pickle.

    Raises CannotStart, OSError.

    The format: https://www.cs.toronto.edu/~kriz/cifar.html. The fine labels of CIFAR-100.
    """
    if os.path.getsize(path) > MOST_BYTES:
        raise CannotStart(f"{path} is too large for a file of CIFAR")
    with open(path, "rb") as file:
        try:
            content = _CifarUnpickler(file, encoding="bytes").load()
        except (
            pickle.UnpicklingError,
            EOFError,
            ValueError,
            TypeError,
            AttributeError,
            IndexError,
            KeyError,
        ) as error:
            raise CannotStart(
                f"{path} is truncated, or no file of CIFAR: {error or type(error).__name__}"
            ) from error
    content = content if isinstance(content, dict) else {}
    array = content.get(b"data")
    labels = content.get(b"fine_labels", content.get(b"labels"))
    if (
        not isinstance(array, _Array)
        or not isinstance(labels, list)
        or not all(type(n) is int for n in labels)
    ):
        raise CannotStart(
            f"{path} is no file of CIFAR: it has no array `data`, or no list of labels"
        )
    if array.shape != (len(labels), 3 * 32 * 32) or len(array.content) != math.prod(array.shape):
        raise CannotStart(f"{path} is broken: {len(labels)} labels and an array of {array.shape}")
    images = torch.frombuffer(bytearray(array.content), dtype=torch.uint8)
    return images.view(-1, 3, 32, 32), torch.tensor(labels, dtype=torch.int64)


class _Array:
    """Shape and bytes of a pickled numpy array."""

    shape: tuple[int, ...] = ()
    content = b""

    def __setstate__(self, state: Any) -> None:
        _version, shape, _kind, _columns_first, content = state
        self.shape = tuple(shape)
        self.content = bytes(content)


class _Kind:
    """A stand-in for a pickled numpy dtype; that elements are bytes follows from the
    array's size.
    """

    def __setstate__(self, state: Any) -> None:
        """Ignore the state."""


def _encoded(text: str, encoding: str) -> bytes:
    """Return the bytes that Python 2 pickled as text with that encoding."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding}")
    return text.encode("latin1")


class _CifarUnpickler(pickle.Unpickler):
    """An unpickler that accepts only four names, which construct nothing but arrays of bytes."""

    def find_class(self, module: str, name: str) -> Any:
        makers = {
            "_reconstruct": lambda *_: _Array(),
            "ndarray": _Array,
            "dtype": lambda *_: _Kind(),
        }
        if (
            module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
            and name in makers
        ):
            return makers[name]
        if (module, name) == ("_codecs", "encode"):
            return _encoded
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _image_folder(folder: str, pixels: int, most_classes: int) -> ImageFiles:
    entries = _by_name(folder)
    classes = [entry for entry in entries if entry.is_dir()]
    if not classes:
        flat = sum(_is_image(entry.name) for entry in entries)
        if flat:
            raise CannotStart(
                f"{folder} holds {flat} images and no folder per class, as ImageNet's validation "
                "images are published:"
                " sort them into DIRECTORY/CLASS/IMAGE first, or use the training images"
            )
        raise CannotStart(f"{folder} holds no folder per class with images")
    if len(classes) > most_classes:
        raise CannotStart(
            f"{folder} holds {len(classes)} folders, at most {most_classes} classes can be trained"
        )
    files = []
    for label, each in enumerate(classes):
        files += [(entry.path, label) for entry in _by_name(each.path) if _is_image(entry.name)]
    if not files:
        raise CannotStart(
            f"the {len(classes)} folders of {folder} hold no images ({', '.join(_IMAGE_SUFFIXES)})"
        )
    if not find_spec("PIL"):
        raise CannotStart("Pillow is missing, which decodes images: pip install pillow")
    return ImageFiles(files, pixels)


def _by_name(folder: str) -> list[os.DirEntry[str]]:
    return sorted(os.scandir(folder), key=lambda entry: entry.name)


def _is_image(name: str) -> bool:
    return name.lower().endswith(_IMAGE_SUFFIXES)


def square(path: str, pixels: int) -> Tensor:
    """Return the central square of an image, (3, pixels, pixels) of unsigned bytes.

    Raises CannotStart for a file that cannot be decoded.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.draft("RGB", (2 * pixels, 2 * pixels))  # a JPEG is decoded no larger than needed
            scale = pixels / min(image.size)
            size = [max(pixels, round(side * scale)) for side in image.size]
            colours = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CannotStart(f"{path} cannot be decoded: {error}") from error
    left, top = ((side - pixels) // 2 for side in size)
    middle = colours.crop((left, top, left + pixels, top + pixels))
    return (
        torch.frombuffer(bytearray(middle.tobytes()), dtype=torch.uint8)
        .view(pixels, pixels, 3)
        .permute(2, 0, 1)
    )
