"""Data sets in the formats that they are published in, made of noise."""

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

IMAGES = 24


def idx(values: "np.ndarray[Any, Any]") -> bytes:
    return (
        bytes((0, 0, 8, values.ndim))
        + struct.pack(f">{values.ndim}I", *values.shape)
        + values.tobytes()
    )


def noise(*shape: int) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


def labels(classes: int, count: int = IMAGES) -> list[int]:
    return [i % classes for i in range(count)]


def write_fashion_mnist(folder: Path) -> None:
    raw = folder / "FashionMNIST/raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte").write_bytes(idx(noise(IMAGES, 28, 28)))
    (raw / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(idx(np.array(labels(10), dtype=np.uint8)))
    )


def write_cifar10(folder: Path) -> None:
    inside = folder / "cifar-10-batches-py"
    inside.mkdir(parents=True)
    for part in range(1, 6):
        content = {b"batch_label": b"training", b"data": noise(IMAGES, 3072), b"labels": labels(10)}
        (inside / f"data_batch_{part}").write_bytes(pickle.dumps(content, protocol=2))


def write_cifar100(folder: Path) -> None:
    inside = folder / "cifar-100-python"
    inside.mkdir(parents=True)
    content = {
        b"data": noise(IMAGES, 3072),
        b"fine_labels": labels(100),
        b"coarse_labels": labels(20),
    }
    (inside / "train").write_bytes(pickle.dumps(content, protocol=2))


def write_imagenet(folder: Path) -> None:
    for name in ("n01440764", "n01443537"):
        (folder / "train" / name).mkdir(parents=True)
        for image in range(IMAGES // 2):
            kind = "JPEG" if image % 2 else "PNG"
            picture = Image.fromarray(noise(80, 120, 3))
            picture.save(folder / "train" / name / f"{name}_{image}.{kind}", format=kind)


WRITERS: dict[str, Callable[[Path], None]] = {
    "fashion_mnist": write_fashion_mnist,
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
    "imagenet": write_imagenet,
}
