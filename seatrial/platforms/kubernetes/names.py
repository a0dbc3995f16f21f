"""The texts that Kubernetes takes, each refused in words when it is none."""

import re
from typing import Annotated

from pydantic import AfterValidator


def text(pattern: str, legal: str) -> AfterValidator:
    """A text of that pattern; `legal` ends the sentence "VALUE is no ..."."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} is no {legal}")
        return value

    return AfterValidator(check)


_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"

DnsLabel = Annotated[
    str, text(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "Kubernetes name: 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
]
DnsName = Annotated[
    str, text(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "name of a Kubernetes object: a-z, 0-9, '-' and '.'")
]
LabelKey = Annotated[
    str, text(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL}", "label key, such as topology.kubernetes.io/zone")
]
ResourceName = Annotated[
    str,
    text(
        rf"cpu|memory|ephemeral-storage|hugepages-[1-9]\d*[KMGT]i|[a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/{_LABEL}",
        "resource of nodes: cpu, memory, ephemeral-storage, hugepages-SIZE, or DOMAIN/NAME such as rdma/ib",
    ),
]
Quantity = Annotated[
    str, text(r"(0|[1-9]\d{0,17})(\.\d{1,9})?(m|k|[MGTPE]|[KMGTPE]i)?", "quantity, such as 8, 500m or 64Gi")
]
LabelValue = Annotated[str, text(rf"({_LABEL})?", "label value: up to 63 of letters, digits, '-', '_' and '.'")]
