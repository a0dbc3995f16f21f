"""Compare a sweep of a log with what is known of its cluster: links, catalog and model. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from seatrial.catalog.nearest import missing_reference
from seatrial.catalog.physics import MANY_GPUS, as_slow_as_ethernet, plateau_words, with_shares
from seatrial.catalog.reach import one_nic_less
from seatrial.checks.collectives.logs import group_of, with_own_nics
from seatrial.checks.collectives.problems import network_of
from seatrial.logs.cluster import Claim, other_gpus, setup_of, within_a_group
from seatrial.logs.numbers import judged_alone
from seatrial.model.curves import SHARE
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join, parts_of
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict, worst
from seatrial.nccl import Sweep
from seatrial.text.words import fraction, number

_PLATEAU = "busbw_plateau"
_GROSS_LOSS = 0.1  # of the link rate: what another network, or one link of many, carries


def checked(measured: Check, sweep: Sweep, claim: Claim, is_control: bool) -> Check:
    """Judge the check by what is known of its cluster; a control arm, with a link switched off, by
    nothing.
    """
    if other_gpus(claim, sweep):  # of the GPUs that took part, though another number is usual
        gpus_per_node = (sweep.ranks or 0) // claim.nodes
        claim = replace(claim, gpus_per_node=gpus_per_node)
    if not claim.is_placed:
        claim = replace(claim, hardware="")
    placed = within_a_group(claim, sweep)
    setup = setup_of(placed, sweep)
    if group_of(sweep):
        setup = with_own_nics(setup)
    known = setup
    if is_control:
        known = Setup(
            hardware="",
            nodes=setup.nodes,
            gpus_per_node=setup.gpus_per_node,
            slots_per_node=setup.slots_per_node,
        )
    shared = with_shares(measured, setup)
    check = judged_alone(shared, known)
    verdict = Verdict.PASS
    doubt = None
    if not is_control:
        verdict, doubt = _doubt(check, setup, sweep)
    missing = None
    if claim.is_placed and is_control:
        missing = Reason.of("control-arm")
    elif claim.is_placed:
        missing = missing_reference(check, setup)
    notes = (
        _far_below(check, setup),
        doubt,
        *_worst_first(check, measured),
        *plateau_words(check, setup),
        missing,
        _may_be_sockets(check, setup, sweep),
    )
    verdict = worst((check.verdict, verdict))
    return replace(check, verdict=verdict, reason=join(notes))


def _may_be_sockets(check: Check, setup: Setup, sweep: Sweep) -> Reason | None:
    """Return a hint that a bad number may be a fallback to sockets, where the log does not say what
    network carried the data.
    """
    if sweep.transport and sweep.transport.networks:
        return None
    if setup.nodes < 2 or not network_of(setup.fabric):
        return None
    if check.verdict in (Verdict.FAIL, Verdict.DEGRADED) and check.judgements:
        return Reason.of("log-without-network")
    return None


def _far_below(check: Check, setup: Setup) -> Reason | None:
    """Return a reason to suspect that the data took another path, if a plateau reaches a small
    share of its links.
    """
    failed = [each.measurement for each in check.judgements if each.verdict is Verdict.FAIL]
    plateau = _first(failed, _PLATEAU)
    if plateau is None:
        return None
    known_share = _first(check.measurements, SHARE)
    if known_share is not None:
        share = known_share.value
    elif setup.gpu_link_gb_s:
        # The fabric of such GPUs carries about as much
        share = plateau.value / setup.gpu_link_gb_s
    else:
        return None
    if not share or share >= _GROSS_LOSS:
        return None
    link_rate = plateau.value / share
    links = "the fabric" if setup.nodes > 1 else "the GPUs' own links"
    return Reason.of(
        "far-below-link-rate", share=fraction(share), rate=number(link_rate), links=links
    )


def _first(measurements: Iterable[Measurement], metric: str) -> Measurement | None:
    for each in measurements:
        if each.metric == metric:
            return each
    return None


def _doubt(check: Check, setup: Setup, sweep: Sweep) -> tuple[Verdict, Reason | None]:
    """Return a verdict and reason against a check although its numbers pass."""
    sockets = _sockets(check, setup, sweep)
    if sockets:
        return Verdict.INCONCLUSIVE, sockets
    if not check.passed:
        return Verdict.PASS, None
    slow = one_nic_less(check.measurements, setup)
    if slow:
        return Verdict.DEGRADED, slow
    return Verdict.PASS, None


def _sockets(check: Check, setup: Setup, sweep: Sweep) -> Reason | None:
    """Return a reason to suspect TCP between GPUs with links of their own, if no fabric was
    claimed.
    """
    if setup.fabric or setup.nodes < 2:
        return None
    has_links = setup.gpu_link_gb_s or setup.slots_per_node >= MANY_GPUS
    if not has_links:
        return None
    transport = sweep.transport
    if transport and transport.sockets_only and transport.nodes != 1:
        seen = f"the data went over sockets ({transport.evidence})"
        return Reason.of("log-over-sockets", seen=seen)
    plateau = _first(check.measurements, _PLATEAU)
    sizes = [row.size for row in sweep.rows]
    largest_bytes = max(sizes, default=None)
    if plateau is None or not as_slow_as_ethernet(plateau, setup, largest_bytes):
        return None
    seen = f"{number(plateau.value)} GB/s between nodes is what TCP sockets reach"
    return Reason.of("log-over-sockets", seen=seen)


def _worst_first(check: Check, sweep_check: Check) -> tuple[Reason, ...]:
    """Order the parts of the reason: the worst measurement before the sweep itself."""
    if check.verdict is not sweep_check.verdict:
        own = sweep_check.reason
        known_parts = parts_of(own)
        added = [part for part in parts_of(check.reason) if part not in known_parts]
        return join(added), own
    if check.passed:
        return (check.reason,)
    for judgement in check.judgements:
        if judgement.measurement.metric != _PLATEAU:
            continue
        if judgement.source == "sanity" or judgement.verdict is not Verdict.PASS:
            break
        # Something else keeps it from passing
        as_fast = Reason.of("as-fast-as-expected", source=judgement.source)
        return check.reason, as_fast
    return (check.reason,)
