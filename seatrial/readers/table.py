"""The table of what can be in a text beside nccl-tests output: what a part looks like, its reader, what it finds.

The first reader whose mark a line has takes it. A new tool is an entry here, and its reader in the file of its family.
"""

import re
from collections.abc import Sequence

from seatrial.readers import bandwidth, dcgm, infiniband, nvidia_smi
from seatrial.readers.documents import document_of
from seatrial.readers.report import Reader, Report


def _read_json(lines: Sequence[str]) -> Report | None:
    document = document_of(lines)
    if document is None:
        return None
    return dcgm.read_document(document) or bandwidth.read_document(document)


READERS = (
    Reader(
        "`dcgmi diag`, text or `--json`",
        "`fail` or `degraded` as its tests say, with the GPU",
        ("| Diagnostic", "Successfully ran diagnostic for group"),
        re.compile(r"\s*\| Diagnostic +\| Result|\s*Successfully ran diagnostic for group"),
        dcgm.read_diag,
        belongs=re.compile(r"\s*(?:\||\+[-=]+)"),
    ),
    Reader(
        "`nvbandwidth`, text or `--json`",
        "`corrupt` if data was wrong after a copy, `fail` for an error of CUDA",
        ("nvbandwidth Version",),
        re.compile(r"nvbandwidth Version"),
        bandwidth.read_nvbandwidth,
        belongs=bandwidth.LINE,
    ),
    Reader(
        "`ib_write_bw` and its sisters (perftest)",
        "`fail` for an error of a connection or a completion",
        ("#bytes", "RDMA_", "Send ", "Atomic"),
        re.compile(rf"\s*#bytes\s+#iterations|{infiniband.TEST.pattern}"),
        infiniband.read_perftest,
        belongs=infiniband.LINE,
    ),
    Reader(
        "`nvidia-smi -q`",
        "`fail` for a recovery action, rows that could not be remapped, a fabric that is not up, fields that cannot be"
        " read; `degraded` for slowdowns, uncorrectable errors, a narrow PCIe link",
        ("NVSMI LOG", "GPU 0000"),
        re.compile(r"=+NVSMI LOG=+|GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8}\s*$"),
        nvidia_smi.read_query,
        belongs=nvidia_smi.LINE,
    ),
    Reader(
        "documents in JSON of these tools",
        "",
        ("{",),
        re.compile(r"\s*\{\s*$|\s*\{\s*\"(?:DCGM|nvbandwidth)"),
        _read_json,
        ends=re.compile(r"\A\}|\A\s*\{.*\}\s*\Z"),
    ),
)
