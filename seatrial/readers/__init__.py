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
)

_MODULES = (report, nvidia_smi, dcgm, bandwidth, infiniband, fabric, ports, training, stragglers, nccl_ras)
REASONS = {code: entry for module in _MODULES for code, entry in module.REASONS.items()}

register(REASONS)
