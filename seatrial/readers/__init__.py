"""Output of other tools than nccl-tests: the parts of a text, and a reader for each kind of part."""

from seatrial.model.reason import register
from seatrial.readers import nvidia_smi, report

REASONS = {**report.REASONS, **nvidia_smi.REASONS}

register(REASONS)
