"""The draft of a cluster file: fields with their values, and notes of what these rest on."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.catalog import hardware_of, known_hardware
from seatrial.model.errors import InputError

# A field, and the values that are there, the likeliest first
Choose = Callable[[str, Sequence[str]], str]
MOST_NODES = 10_000  # that a cluster file takes
IMAGE = "registry.example.com/seatrial/acceptance:1"  # stands for the one that the site has


@dataclass(frozen=True, slots=True)
class Seen:
    """The value of a field: `note` says what it rests on; `is_open`: it cannot be seen, so it is
    asked for.

    An open field whose value is None stays unset, and `unset` writes a value as a comment only.
    """

    value: Any
    note: str = ""
    is_open: bool = False
    unset: bool = False


Draft = dict[str, Seen]  # by field: nodes, platform.queue


@dataclass(frozen=True, slots=True)
class Site:
    """What the command line says of the site: a context of the kubeconfig and its namespace, or
    hosts by ssh.
    """

    context: str | None = None
    namespace: str | None = None
    hosts: tuple[str, ...] = ()

    def one_host(self, needs: str) -> str | None:
        """Return the one host that a platform takes, or None. Raises InputError for several."""
        if len(self.hosts) > 1:
            raise InputError(f"--host: {needs}")
        return self.hosts[0] if self.hosts else None


def hardware_fields(gpus: int, product: str) -> Draft:
    """Return hardware and GPUs of a node by a product's or a type's name: "NVIDIA-H100-80GB-HBM3",
    "h100".
    """
    if not gpus:
        return {}
    words = {word.upper() for word in re.split(r"[^A-Za-z0-9]+", product)}
    alike = [name for name in known_hardware() if name.split("-")[0] in words]
    name = (
        hardware_of(product.replace("-", " "))
        or hardware_of(product)
        or (alike[0] if len(alike) == 1 else None)
    )
    value = name or next(
        (each for each in alike if each.endswith("-SXM")), {"name": product[:63] or "gpu"}
    )
    note = f"GPUs of the site: {product[:80] or 'without a name'}"
    return {"gpus_per_node": Seen(gpus), "hardware": Seen(value, note, is_open=name is None)}


def open_fields(nodes: int, fabric: str | None, image: str | None) -> Draft:
    """Return the fabric of several nodes, and the image, which a person fills in where they are not
    known.
    """
    joins = {"fabric": Seen(fabric, is_open=fabric is None)} if nodes > 1 else {}
    return {
        **joins,
        "image": Seen(
            image or IMAGE, "an image of the nodes" if image else "", is_open=image is None
        ),
    }
