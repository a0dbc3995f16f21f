"""nccl-tests output of any version, and the evidence in it of how NCCL moved the data."""

from seatrial.nccl.busbw import busbw_factor, expected_algbw
from seatrial.nccl.model import Device, Row, Sweep, Timing, render
from seatrial.nccl.parse import parse_file, parse_lines, parse_text
from seatrial.nccl.sweeps import SweepReader
from seatrial.nccl.transport import Transport, TransportReader

__all__ = [
    "Device",
    "Row",
    "Sweep",
    "SweepReader",
    "Timing",
    "Transport",
    "TransportReader",
    "busbw_factor",
    "expected_algbw",
    "parse_file",
    "parse_lines",
    "parse_text",
    "render",
]
