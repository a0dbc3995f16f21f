"""The draft of a cluster file: fields with values, and notes on where these come from."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.catalog import hardware_of, known_hardware
from seatrial.model.errors import InputError

# Takes a field and its possible values, the likeliest first; returns one
Choose = Callable[[str, Sequence[str]], str]
MOST_NODES = 10_000  # most nodes of a cluster file
IMAGE = "registry.example.com/seatrial/acceptance:1"  # placeholder for the site's image


@dataclass(frozen=True, slots=True)
class Seen:
    """The value of a field, with a `note` on where it comes from.

    `is_open`: it could not be detected, so a person is asked. An open field with value None stays
    unset, and `unset` writes the value as a comment only.
    """

    value: Any
    note: str = ""
    is_open: bool = False
    unset: bool = False


Draft = dict[str, Seen]  # by field name: nodes, platform.queue


@dataclass(frozen=True, slots=True)
class Site:
    """What the command line says about the site: a kubeconfig context and namespace, or hosts to
    reach by ssh.
    """

    context: str | None = None
    namespace: str | None = None
    hosts: tuple[str, ...] = ()

    def one_host(self, needs: str) -> str | None:
        """Return the only host, or None. Raises InputError if there are several; `needs`
        says why.
        """
        if len(self.hosts) > 1:
            raise InputError(f"--host: {needs}")
        return self.hosts[0] if self.hosts else None


def hardware_fields(gpus: int, product: str) -> Draft:
    """Return the fields for hardware and GPUs of a node, from a product name or type:
    "NVIDIA-H100-80GB-HBM3", "h100".
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
    """Return the fields for the fabric of several nodes and the image, open if they are unknown."""
    joins = {"fabric": Seen(fabric, is_open=fabric is None)} if nodes > 1 else {}
    return {
        **joins,
        "image": Seen(
            image or IMAGE, "an image of the nodes" if image else "", is_open=image is None
        ),
    }
