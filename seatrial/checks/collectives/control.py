"""Control arms: sweeps in which a link was switched off on purpose, and whether that made any difference. Pure.

Two sweeps of one collective, one of them without NVLink or the network, show what the link brings. Where both are as
fast, the switch did nothing or the link is not used, and the pair proves neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.nccl import Sweep
from seatrial.text.numbers import short

# Two tools on one machine agree within 1 %; what NVLink or a fabric brings is a factor.
_AS_FAST = 0.95
_OFF = frozenset({"0", "off", "false"})


@dataclass(frozen=True, slots=True)
class Arm:
    """One sweep: its `name` in reasons, and its plateau in GB/s, None where there is none."""

    name: str
    sweep: Sweep
    plateau_gb_s: float | None = None


def settings_of(sweep: Sweep) -> dict[str, str]:
    """The variables of NCCL in a sweep's log, by their full names."""
    settings = dict(sweep.transport.settings) if sweep.transport else {}
    return {f"NCCL_{name}": value for name, value in settings.items()}


def switched_off(sweep: Sweep) -> dict[str, str]:
    """The settings in a sweep's log that keep NCCL off a link, by name: {"NCCL_P2P_DISABLE": "1"}."""
    settings = settings_of(sweep)
    return {name: value for name, value in settings.items() if _is_off(name.removeprefix("NCCL_"), value)}


def treatment_of(control: Arm, arms: Sequence[Arm], nodes: int) -> Arm | None:
    """The arm that `control` is to be compared with: the same collective over as many ranks, with fewer links off."""
    off = _that_matter(control.sweep, nodes)
    return next((arm for arm in arms if _is_treatment(arm.sweep, control.sweep, off, nodes)), None) if off else None


def no_control(arms: Sequence[Arm], nodes: int) -> Check | None:
    """A check that is inconclusive where a control arm is as fast as its treatment; None where none is."""
    differences = [_compared(arm, treatment) for arm in arms if (treatment := treatment_of(arm, arms, nodes))]
    reasons = [reason for reason in differences if reason]
    return Check("control", Verdict.INCONCLUSIVE, "; ".join(reasons)) if reasons else None


def _compared(control: Arm, treatment: Arm) -> str | None:
    slow, fast = control.plateau_gb_s, treatment.plateau_gb_s
    if not slow or not fast or slow < _AS_FAST * fast:
        return None
    off = ", ".join(f"{name}={value}" for name, value in sorted(switched_off(control.sweep).items()))
    return Reason.of(
        "control-has-no-effect",
        control=control.name,
        collective=control.sweep.collective,
        off=off,
        treatment=treatment.name,
        slow=short(slow),
        fast=short(fast),
    )


def _is_off(name: str, value: str) -> bool:
    if name.endswith("_DISABLE"):
        return value.lower() not in _OFF
    if name == "MNNVL_ENABLE":
        return value.lower() in _OFF
    return (name, value.lower()) in (("NET", "socket"), ("P2P_LEVEL", "loc"), ("P2P_LEVEL", "0"))


def _that_matter(sweep: Sweep, nodes: int) -> set[str]:
    """Switches that must show: on one node there is no network to miss, and with a GPU per node no neighbour."""
    network = {"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_MNNVL_ENABLE"}
    inside = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"}
    several = sweep.ranks is None or sweep.ranks > nodes
    return set(switched_off(sweep)) & ((network if nodes > 1 else set()) | (inside if several else set()))


def _is_treatment(sweep: Sweep, control: Sweep, off: set[str], nodes: int) -> bool:
    same = (sweep.collective, sweep.ranks) == (control.collective, control.ranks)
    return same and _that_matter(sweep, nodes) < off
