"""Whether the ranks that were asked for took part in a sweep. Pure."""

from seatrial.checks.collectives.rows import Problem
from seatrial.checks.collectives.setting import Setting
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.nccl import Sweep
from seatrial.nccl.busbw import agrees, ratio_interval
from seatrial.nccl.collectives import COLLECTIVES

_MAX_TORN = 1  # lines of a header that another process's output may have torn


def other_ranks(setting: Setting, sweep: Sweep | None) -> Problem | None:
    """Whether others than the ranks asked for took part.

    A line of the header that was torn is no evidence of that; busbw/algbw is, where it contradicts the ranks asked for.
    Where it bears them out they took part, and where it says nothing nobody knows.
    """
    if sweep is None or sweep.ranks == setting.ranks:
        return None
    if sweep.groups > 1 or has_unknown_ranks(setting, sweep):
        return _unsaid_ranks(setting, sweep)
    if not agrees(setting.operation, setting.ranks, sweep.rows):
        why = f": {sweep.errors[0]}" if sweep.errors else ""
        took_part = f"{sweep.ranks} of {setting.ranks}" if sweep.ranks else f"other than {setting.ranks}"
        return Verdict.FAIL, Reason.of("ranks-missing", took_part=took_part, cause=why)
    if sweep.ranks is None or _numbers_tell_ranks(setting, sweep):
        return None
    listed = sorted(device.rank for device in sweep.devices) == list(range(sweep.ranks))
    if sweep.rows and listed and sweep.ranks + _MAX_TORN < setting.ranks:
        return Verdict.FAIL, Reason.of("ranks-missing", took_part=f"{sweep.ranks} of {setting.ranks}", cause="")
    problem = f"the output names {sweep.ranks} of {setting.ranks} ranks, and its numbers do not tell"
    return Verdict.INCONCLUSIVE, Reason.of("ranks-unknown", problem=problem)


def _unsaid_ranks(setting: Setting, sweep: Sweep) -> Problem | None:
    if sweep.groups > 1:
        return Verdict.INCONCLUSIVE, Reason.of("ranks-in-groups", groups=sweep.groups)
    problem = f"how many of {setting.ranks} ranks took part is unknown: the header is lost, and the numbers do not tell"
    return (Verdict.INCONCLUSIVE, Reason.of("ranks-unknown", problem=problem)) if sweep.rows else None


def _numbers_tell_ranks(setting: Setting, sweep: Sweep) -> bool:
    return COLLECTIVES[setting.operation].factor.depends_on_ranks and ratio_interval(sweep.rows) is not None


def has_unknown_ranks(setting: Setting, sweep: Sweep | None) -> bool:
    """Whether nothing says how many took part. Then busbw is the same for any number of them, and counts if slow."""
    return sweep is not None and sweep.ranks is None and not _numbers_tell_ranks(setting, sweep)


def fewer_nodes(setting: Setting, sweep: Sweep | None) -> Problem | None:
    """Whether all ranks met, but on fewer nodes than asked for: one pod of many, a hostfile that was not read.

    Host names tell only where every rank has a line, and no two ranks on one name have the same GPU.
    """
    if sweep is None or not setting.nodes or len(sweep.devices) != sweep.ranks:
        return None
    hosts = {device.host for device in sweep.devices}
    places = {(device.host, device.device) for device in sweep.devices}
    if len(hosts) >= setting.nodes or len(places) < len(sweep.devices):
        return None
    return Verdict.FAIL, Reason.of(
        "ranks-on-fewer-nodes", ranks=sweep.ranks, hosts=len(hosts), nodes=setting.nodes, min=min(hosts)
    )
