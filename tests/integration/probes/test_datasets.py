"""Data sets in the formats that they are published in, made here and read by the probe's own
readers.
"""

import hashlib
import http.server
import io
import os
import pickle
import struct
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration.probes.published import (
    IMAGES,
    WRITERS,
    idx,
    labels,
    noise,
    write_cifar10,
    write_cifar100,
    write_fashion_mnist,
    write_imagenet,
)


def test_the_readers_return_the_written_images(tmp_path: Path, datasets: ModuleType) -> None:
    write_fashion_mnist(tmp_path)
    write_cifar10(tmp_path)
    write_cifar100(tmp_path)
    fashion, cifar10, cifar100 = (
        datasets.open_dataset(name, str(tmp_path), 32).tensors
        for name in ("fashion_mnist", "cifar10", "cifar100")
    )
    assert fashion[0].tolist() == noise(IMAGES, 28, 28)[:, None].tolist()
    assert fashion[1].tolist() == labels(10)
    assert cifar10[0][:IMAGES].tolist() == noise(IMAGES, 3072).reshape(-1, 3, 32, 32).tolist()
    assert cifar10[1].tolist() == 5 * labels(10)
    assert cifar100[1].tolist() == labels(100)
    inputs = datasets.as_inputs(fashion[0], 32)
    assert inputs.shape == (IMAGES, 3, 32, 32)
    assert -1 <= float(inputs.min()) < float(inputs.max()) <= 1


def test_images_are_cropped_to_their_centre(tmp_path: Path, datasets: ModuleType) -> None:
    write_imagenet(tmp_path)
    read = datasets.open_dataset("imagenet", str(tmp_path), 80)
    image, label = read[0]  # of 80 x 120 pixels, a PNG: nothing is lost
    assert (len(read), label, read[IMAGES - 1][1]) == (IMAGES, 0, 1)
    assert image.permute(1, 2, 0).tolist() == noise(80, 120, 3)[:, 20:100].tolist()
    assert read[1][0].shape == (3, 80, 80)  # a JPEG


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo owned",)


def damaged(name: str, folder: Path) -> None:
    """Write the data set and damage it in one way."""
    kind, _, damage = name.partition(" ")
    WRITERS[kind](folder)
    images = folder / "FashionMNIST/raw/train-images-idx3-ubyte"
    compressed = folder / "FashionMNIST/raw/train-labels-idx1-ubyte.gz"
    batch, train = folder / "cifar-10-batches-py/data_batch_3", folder / "train"
    if damage == "truncated":
        images.write_bytes(images.read_bytes()[:-100])
    elif damage == "truncated gzip":
        compressed.write_bytes(compressed.read_bytes()[:-9])
    elif damage == "text":
        images.write_text("<html>not found</html>")
    elif damage == "huge":
        images.write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", *[2**31] * 3))
    elif damage == "missing":
        images.unlink()
    elif damage == "unequal":
        images.write_bytes(idx(noise(IMAGES - 1, 28, 28)))
    elif damage == "cut":
        batch.write_bytes(batch.read_bytes()[:-100])
    elif damage == "gone":
        batch.unlink()
    elif damage == "evil":
        batch.write_bytes(pickle.dumps(Evil(), protocol=2))
    elif damage == "labels":
        batch.write_bytes(pickle.dumps({b"data": noise(2, 3072), b"labels": [1, 10]}, protocol=2))
    elif damage == "flat":
        for image in sorted(train.glob("*/*")):
            image.rename(train / image.name)
        for each in ("n01440764", "n01443537"):
            (train / each).rmdir()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "fashion_mnist truncated",
            "FashionMNIST/raw/train-images-idx3-ubyte is truncated or broken: 18716 of 18816 bytes",
        ),
        ("fashion_mnist truncated gzip", "train-labels-idx1-ubyte.gz is truncated or broken: "),
        ("fashion_mnist text", "train-images-idx3-ubyte is no IDX file of unsigned bytes"),
        (
            "fashion_mnist huge",
            "train-images-idx3-ubyte is broken: its header promises an array of (2147483648, ",
        ),
        ("fashion_mnist missing", "fashion_mnist: "),
        ("fashion_mnist unequal", "(23, 28, 28) images and (24,) labels do not fit together"),
        ("cifar10 cut", "cifar-10-batches-py/data_batch_3 is truncated, or no file of CIFAR: "),
        ("cifar10 gone", "cifar-10-batches-py/data_batch_3 is missing; --download fetches it"),
        ("cifar10 evil", "no file of CIFAR: it asks for posix.system"),
        ("cifar10 labels", "data_batch_3: its labels are not those of 10 classes"),
        (
            "imagenet flat",
            (
                "train holds 24 images and no folder per class, as ImageNet's validation "
                "images are published"
            ),
        ),
    ],
)
def test_a_broken_file_is_one_line_that_names_it(
    tmp_path: Path, datasets: ModuleType, capfd: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    damaged(name, tmp_path)
    with pytest.raises(datasets.CannotStart) as caught:
        datasets.open_dataset(name.split(maxsplit=1)[0], str(tmp_path), 32)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_missing_dataset_is_an_error_that_suggests_the_download_option(
    tmp_path: Path, datasets: ModuleType
) -> None:
    nowhere = str(tmp_path / "data")
    for name, hint in (("cifar10", "; --download fetches it"), ("imagenet", "")):
        with pytest.raises(datasets.CannotStart) as caught:
            datasets.open_dataset(name, nowhere, 32)
        assert str(caught.value) == f"{name}: there is no directory {nowhere}{hint}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a web server, and the folder that it serves."""
    folder = tmp_path / "published"
    folder.mkdir()
    handler = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}", folder
        serving.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_an_archive_is_downloaded_checked_and_unpacked(
    tmp_path: Path,
    datasets: ModuleType,
    server: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, folder = server
    write_cifar100(tmp_path / "source")
    archive = folder / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "source/cifar-100-python", "cifar-100-python")
        escape = tarfile.TarInfo("../escaped")
        escape.size = 4
        tar.addfile(escape, io.BytesIO(b"evil"))
    md5 = hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()

    def published(md5: str) -> None:
        one = datasets.Archive(f"{url}/{archive.name}", md5, archive.name)
        monkeypatch.setitem(
            datasets.SOURCES, "cifar100", datasets.Source(100, 32, "cifar-100-python", (one,))
        )

    data = tmp_path / "data"
    published("0" * 32)
    with pytest.raises(datasets.CannotStart, match=f"has the MD5 {md5}, not the published 0000"):
        datasets.download("cifar100", str(data))
    assert list(data.iterdir()) == []
    published(md5)
    datasets.download("cifar100", str(data))
    archive.unlink()
    datasets.download("cifar100", str(data))  # nothing to do
    assert datasets.open_dataset("cifar100", str(data), 32).tensors[1].tolist() == labels(100)
    assert sorted(path.name for path in data.iterdir()) == [
        "cifar-100-python",
        "cifar-100-python.tar.gz",
    ]
    assert not (tmp_path / "escaped").exists()
