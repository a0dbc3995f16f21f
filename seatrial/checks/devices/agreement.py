"""Do like devices compute alike? Their digests of the same work, compared. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.checks.devices.answers import DeviceMeasurement
from seatrial.checks.devices.problem import Problem
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.text.words import some_of

_CONFIDENCE = 0.95  # devices that agree are not wrong alike by chance, but something of their own may be set otherwise


@dataclass(frozen=True, slots=True)
class _Digested:
    """A device, and its digest of the same work as that of the others of its group."""

    name: str
    device: DeviceMeasurement
    digest: str


def disagreements(measured: Mapping[str, Sequence[DeviceMeasurement]]) -> Iterator[Problem]:
    """Devices against which the majority of their like speaks; and groups without a majority, in which nobody knows.

    Only devices of one model, library and software are compared, with results of one dtype. Those that are known to be
    wrong have no say.
    """
    outvoted: dict[str, list[tuple[_Digested, str, int]]] = {}
    for (_, _, _, dtype), group in _groups(measured).items():
        common, count = Counter(member.digest for member in group).most_common(1)[0]
        if count == len(group):
            continue
        if count * 2 <= len(group):
            names = some_of([member.name for member in group])
            yield Problem(Verdict.INCONCLUSIVE, Reason.of("digests-divided", dtype=dtype, names=names))
            continue
        for member in group:
            if member.digest != common:
                outvoted.setdefault(member.name, []).append((member, dtype, count))
    for name, votes in outvoted.items():
        dtypes = some_of([dtype for _, dtype, _ in votes])
        evidence = Reason.of("digest-differs", dtypes=dtypes, count=min(count for _, _, count in votes))
        yield Problem.of(Verdict.CORRUPT, Suspect(votes[0][0].device.kind, name, _CONFIDENCE, evidence))


def _groups(
    measured: Mapping[str, Sequence[DeviceMeasurement]],
) -> dict[tuple[str, str, str, str], list[_Digested]]:
    """Devices that must compute alike, by model, library, software and dtype."""
    groups: dict[tuple[str, str, str, str], list[_Digested]] = {}
    for node, devices in measured.items():
        for device in devices:
            for dtype, digest in device.digests.items() if device.software and not device.problem() else ():
                key = (device.model, device.library, device.software, dtype)
                groups.setdefault(key, []).append(_Digested(device.name(node), device, digest))
    return groups
