"""Output of other tools than nccl-tests: the parts of a text, and a reader for each kind of part."""

from seatrial.model.reason import register
from seatrial.readers import (
    bandwidth,
    dcgm,
    fabric,
    infiniband,
    nccl_ras,
    nvidia_smi,
    ports,
    report,
    stragglers,
    training,
    training_results,
)

_MODULES = (
    report, nvidia_smi, dcgm, bandwidth, infiniband, fabric, ports, training, training_results, stragglers, nccl_ras,
)  # fmt: skip
REASONS = {code: entry for module in _MODULES for code, entry in module.REASONS.items()}

register(REASONS)
