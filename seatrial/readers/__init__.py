"""Output of other tools than nccl-tests: the parts of a text, and a reader for each kind of part."""

from seatrial.model.reason import register
from seatrial.readers import (
    dcgm,
    fabric,
    ibstat,
    mlxlink,
    nccl_ras,
    nvidia_smi,
    p2p_bandwidth,
    perftest,
    port_errors,
    ports,
    report,
    stragglers,
    training,
    training_results,
)

_MODULES = (
    report,
    nvidia_smi,
    dcgm,
    p2p_bandwidth,
    perftest,
    ibstat,
    port_errors,
    mlxlink,
    fabric,
    ports,
    training,
    training_results,
    stragglers,
    nccl_ras,
)
REASONS = {code: entry for module in _MODULES for code, entry in module.REASONS.items()}

register(REASONS)
