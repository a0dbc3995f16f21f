"""nccl-tests output of any version, NCCL's transport evidence, and the causes of failure in logs."""

from seatrial.nccl.busbw import busbw_factor, expected_algbw
from seatrial.nccl.causes import Finding
from seatrial.nccl.classify import classify, telling
from seatrial.nccl.draft import file_outcome
from seatrial.nccl.model import Device, Row, Sweep, Timing, render
from seatrial.nccl.parse import parse_file, parse_lines, parse_text
from seatrial.nccl.sweeps import RowReader, SweepReader
from seatrial.nccl.transport import Transport, TransportReader, transport

__all__ = [
    "Device",
    "Finding",
    "Row",
    "RowReader",
    "Sweep",
    "SweepReader",
    "Timing",
    "Transport",
    "TransportReader",
    "busbw_factor",
    "classify",
    "expected_algbw",
    "file_outcome",
    "parse_file",
    "parse_lines",
    "parse_text",
    "render",
    "telling",
    "transport",
]
