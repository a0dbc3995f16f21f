"""GPU models as people and programs write them, and the catalog's entry for each."""

import re

from seatrial.catalog import hardware_of, known_hardware
from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import nearest_of

# The longer names first: a GB200 is no B200. A letter or digit before or behind makes it another
# word.
_FAMILY = lazy(
    r"(?:^|[^A-Z0-9]|\dx)(GB300|GB200|GH200|GB10|B300|B200|B100|H200|H800|H100|H20|A800|A100|A40|A30|A10G?|L40S?|L4|L20"
    r"|V100S?|P100|T4|RTX(?: PRO)? [A-Z]?\d{4}|MI\d{2,3}[AX]?|GAUDI "
    "?[23]?)(?=$|[^A-Z0-9]|SXM|PCI|NVL)",
    re.IGNORECASE,
)
_PCIE = lazy(r"PCI-?E", re.IGNORECASE)
_NVL = lazy(r"NVL(?!INK|\d)", re.IGNORECASE)
_SEVERAL_FORMS = frozenset(
    {"V100", "P100", "A100", "A800", "H100", "H800", "H200", "H20", "B100", "B200", "B300"}
)


def gpu_model(name: str) -> str | None:
    """Return the model in a name that a program prints, such as "NVIDIA H100 80GB HBM3", as the
    catalog spells it.

    A model that the catalog lacks is named by its family and form factor: MI210, H100-PCIE. None if
    none is known.
    """
    exact = hardware_of(name.strip())
    if exact:
        return exact
    plain = name.replace("_", " ")
    match = _FAMILY.search(plain)
    if match is None:
        return None
    family = match[1].upper()
    form = ""
    if family in _SEVERAL_FORMS:  # most are SXM where the name says nothing
        form = "PCIE" if _PCIE.search(plain) else "NVL" if _NVL.search(plain) else "SXM"
    names = (f"{family}-{form}", family, f"{family}-NVL72", f"{family}X")
    entry = next((each for each in names if each in known_hardware()), None)
    if entry and (form in ("", "SXM") or entry == names[0]):
        return entry
    return f"{family}-{form}" if form else family


def find_hardware(name: str) -> tuple[str | None, str]:
    """Return the hardware that a person names, and a line on how it was read; None for a name of no
    GPU.

    A model that the catalog lacks keeps its own name. The line is empty for a name of the catalog.
    """
    if name in known_hardware():
        return name, ""
    by_lower = {each.lower(): each for each in known_hardware()}
    model = by_lower.get(name.strip().lower()) or gpu_model(name)
    if model in known_hardware():
        return model, f"{name} is taken as {model}"
    nearest = nearest_of(model or name, known_hardware())
    if model is None:
        return None, nearest or f"known: {', '.join(known_hardware())}"
    return model, f"{model} is not in the catalog, so no published number is of it" + (
        f"; {nearest}" if nearest else ""
    )
