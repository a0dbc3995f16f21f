"""The table of what can be in a text beside nccl-tests output: what a part looks like, its reader,
what it finds.

The first reader whose mark a line has takes it. A new tool is an entry here, and its reader in the
file of its family.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from seatrial.readers import (
    dcgm,
    dcgm_nvlink,
    fabric,
    gpu_burn,
    iblinkinfo,
    ibstat,
    lspci,
    mlxlink,
    nccl_ras,
    nvbandwidth,
    nvidia_smi,
    p2p_bandwidth,
    perftest,
    port_errors,
    rank_times,
    stragglers,
    training,
    training_results,
)
from seatrial.readers.documents import document_of
from seatrial.readers.report import Reader, Report
from seatrial.system.extensions import loaders, usable
from seatrial.text.lazy_pattern import lazy

log = logging.getLogger("seatrial.readers")

_ROWS = lazy(r"\s{0,40}(?:\||\+[-=]+)")  # of a table that is drawn
_OWN = (
    Reader(
        "`dcgmi diag`, text or `--json`",
        (
            "`fail` or `degraded` as its tests say, with the GPU; a setting of the node is no "
            "broken GPU"
        ),
        ("| Diagnostic", "Successfully ran diagnostic for group", "-----  "),
        lazy(
            r"\s{0,40}(?:\| Diagnostic +\| Result|Successfully ran diagnostic for group"
            r"|[|+]-{3,9} {1,4}(?:Deployment|Integration|Hardware|Stress) )"
        ),
        dcgm.read_diag,
        belongs=_ROWS,
    ),
    Reader(
        "`dcgmi health -c`",
        "`fail` or `degraded` as it says, with GPU and system",
        ("Health Monitor Report", "Overall Health"),
        lazy(r"\s{0,40}(?:\| ?)?Health Monitor Report|\s{0,40}\|.{0,40}Overall Health"),
        dcgm.read_health,
        belongs=_ROWS,
    ),
    Reader(
        "`dcgmi nvlink -s`",
        "`fail` for links that are down, with the GPU or the NVSwitch",
        ("NvLink Link Status",),
        dcgm_nvlink.BEGINS,
        dcgm_nvlink.read_links,
        belongs=dcgm_nvlink.LINE,
    ),
    Reader(
        "`nvidia-smi`",
        "`fail` for fields that cannot be read (`ERR!`), `degraded` for uncorrectable errors",
        ("| NVIDIA-SMI", ".0 O"),
        nvidia_smi.TABLE_BEGINS,
        nvidia_smi.read_table,
        belongs=_ROWS,
    ),
    Reader(
        "`nvidia-smi -q`, text or `-x`",
        "`fail` for a recovery action, rows that could not be remapped, a fabric that is not up, "
        "fields that cannot be"
        " read; `degraded` for slowdowns, uncorrectable errors, a narrow PCIe link, an unhealthy "
        "fabric",
        ("NVSMI LOG", "GPU 0000"),
        lazy(r"=+NVSMI LOG=+|GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8}\s*$"),
        nvidia_smi.read_query,
        belongs=nvidia_smi.QUERY_LINE,
    ),
    Reader(
        "",
        "",
        ("<?xml", "<nvidia_smi_log"),
        lazy(r"\s{0,40}<(?:\?xml|nvidia_smi_log)\b"),
        nvidia_smi.read_xml,
        belongs=lazy(r"\s{0,40}<"),
    ),
    Reader(
        "`nvidia-smi nvlink -s`, `-e`",
        "`fail` for a GPU that has lost links, `degraded` for errors and slow links",
        ("GPU ",),
        lazy(r"GPU \d{1,3}: (?:.{0,80}\(UUID: GPU-|NVIDIA |Tesla |Quadro |GRID )"),
        nvidia_smi.read_nvlink,
        belongs=nvidia_smi.NVLINK_LINE,
    ),
    Reader(
        "`nvbandwidth`, text or `--json`",
        "`corrupt` if data was wrong after a copy, `fail` for an error of CUDA",
        ("nvbandwidth Version", "Running "),
        lazy(r"nvbandwidth Version|Running \w{1,60}_(?:ce|sm|copy)\.\s*$"),
        nvbandwidth.read_nvbandwidth,
        belongs=nvbandwidth.NVBANDWIDTH_LINE,
    ),
    Reader(
        "`p2pBandwidthLatencyTest`",
        "`degraded` for a GPU or a pair slower than most others, and a GPU without peer access",
        ("P2P",),
        p2p_bandwidth.P2P_BEGINS,
        p2p_bandwidth.read_p2p,
        belongs=p2p_bandwidth.P2P_LINE,
    ),
    Reader(
        "`gpu_burn`",
        (
            "`corrupt` for a GPU with wrong results, `fail` for one that died, `degraded` for "
            "one slower than the others"
        ),
        (
            "compare file: ",
            "Burning for ",
            "Initialized device ",
            "proc'd: ",
            "Couldn't init a GPU test",
        ),
        gpu_burn.BEGINS,
        gpu_burn.read_gpu_burn,
        belongs=gpu_burn.LINE,
    ),
    Reader(
        "`results.json` of a training, and what `seatrial probe training` prints",
        "`corrupt` for a loss that is not finite and ranks that differ; throughput by the catalog",
        ('{"event"',),
        training_results.EVENT,
        training_results.read_events,
        belongs=training_results.EVENT,
    ),
    Reader(
        "logs of Megatron-LM, torchtitan, NeMo, Composer, Hugging Face, lines of JSON",
        "`fail` for a loss that is not finite, with rank, node and GPU; `degraded` for steps that "
        "stay slower than"
        " earlier ones, and for a rate below the published one",
        training.NEEDLES,
        training.LINE,
        training.read_training,
        belongs=training.LINE,
        patience=100_000,
        is_labelled=False,
    ),
    Reader(
        "straggler reports of NVIDIA Resiliency Extension",
        "`degraded` for a rank below its threshold, with the node",
        ("GPU relative performance", "GPU individual performance", "STRAGGLER DETECTION WARNING"),
        stragglers.BEGINS,
        stragglers.read_stragglers,
        belongs=stragglers.LINE,
        is_labelled=False,
    ),
    Reader(
        "times of ranks by Megatron-LM: `StragglerDetector`, `--timing-log-option all`",
        "`degraded` for a rank much slower than the others, with its clock",
        ("MnRtt/Rnk", "times across ranks", "time across ranks"),
        rank_times.BEGINS,
        rank_times.read_rank_times,
        belongs=rank_times.LINE,
        is_labelled=False,
    ),
    Reader(
        "`ncclras`",
        (
            "`fail` for a rank that does not answer or reports an error; `inconclusive` for "
            "ranks out of step"
        ),
        ("Communicators...", "Group  ", "INCOMPLETE", "MISMATCH", "Job summary"),
        nccl_ras.BEGINS,
        nccl_ras.read_ras,
        belongs=nccl_ras.LINE,
    ),
    Reader(
        "`ib_write_bw` and its sisters (perftest)",
        (
            "`fail` for an error of a connection or a completion; with `--fabric`, the rate "
            "against that of a port"
        ),
        (
            "#bytes",
            "RDMA_",
            "Send ",
            "Atomic",
            "remote address",
            "Failed to exchange",
            "to socket",
            "Couldn't connect",
        ),
        perftest.BEGINS,
        perftest.read_perftest,
        belongs=perftest.PERFTEST_LINE,
    ),
    Reader(
        "`ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `ibdev2netdev`, `ibportstate`",
        (
            "`fail` for a port without link or subnet manager, `degraded` for one slower than "
            "the others"
        ),
        ("CA '", "hca_id:", "Infiniband device '", "link ", " port ", "# Port info"),
        ibstat.PORT_BEGINS,
        ibstat.read_ports,
        belongs=ibstat.PORT_LINE,
    ),
    Reader(
        "`iblinkinfo`",
        "`degraded` for a link that could be faster or wider, `fail` for one without subnet manager",
        ("CA: ", "Switch: ", "RT: ", "==("),
        iblinkinfo.BEGINS,
        iblinkinfo.read_links,
        belongs=iblinkinfo.BEGINS,
    ),
    Reader(
        "`ibqueryerrors`, `perfquery`",
        "`degraded` for errors of a cable; congestion (`PortXmitWait`, discards) is a note",
        ("Errors for ", "GUID 0x", "ounters: "),
        port_errors.ERRORS_BEGINS,
        port_errors.read_port_errors,
        belongs=port_errors.ERRORS_LINE,
    ),
    Reader(
        "`mlxlink -d DEVICE -m`",
        (
            "`fail` for a port without link, `degraded` for lanes without light, faults of "
            "the module, a high error rate"
        ),
        ("Operational Info", "mlxlink "),
        mlxlink.MLXLINK_BEGINS,
        mlxlink.read_mlxlink,
        belongs=mlxlink.MLXLINK_LINE,
    ),
    Reader(
        "`lspci -vv`",
        "`degraded` for a GPU, NIC or disk with fewer PCIe lanes than it can have",
        tuple(f" {name}" for name in lspci.CLASSES),
        lspci.BEGINS,
        lspci.read_lspci,
        belongs=lspci.LINE,
    ),
    Reader(
        "logs of fabric manager and IMEX",
        (
            "`fail` for fatal errors of an NVSwitch and for what they call an error; "
            "non-fatal ones are notes"
        ),
        ("[tid ", "nv-fabricmanager[", "nvidia-fabricmanager-start.sh[", "nvidia-imex["),
        fabric.LOG_BEGINS,
        fabric.read_log,
        belongs=fabric.LOG_BEGINS,
        patience=1000,
    ),
    Reader(
        "`nvidia-imex-ctl -N`, text or `-j`",
        "`fail` for a node that is not ready",
        ("Connectivity Table Legend", "Node #"),
        fabric.CTL_BEGINS,
        fabric.read_imex_ctl,
        belongs=fabric.CTL_LINE,
    ),
)


def _read_json(lines: Sequence[str]) -> Report | None:
    document = document_of(lines)
    if document is None:
        return None
    for read in (
        dcgm.read_document,
        nvbandwidth.read_document,
        fabric.read_document,
        perftest.read_document,
        training_results.read_document,
    ):
        if report := read(document):
            return report
    return None


_JSON = Reader(
    "",
    "",
    ("{",),
    lazy(r"\{\s*$|\{\s{0,40}\"(?:DCGM|nvbandwidth|nodes|model|throughput)"),
    _read_json,
    ends=lazy(r"\A\}|\A\{.*\}\s*\Z"),
)


def _accepted(name: str, reader: Reader) -> Reader:
    """Return the reader of another package; what it cannot read is left to others.

    Raises TypeError.
    """

    def read(lines: Sequence[str]) -> Report | None:
        try:
            return reader.read(lines)
        except Exception as error:
            log.warning("reader %s: %.200r", name, error)
            return None

    return replace(reader, read=read)


READERS = (*_OWN, *usable(loaders("seatrial.readers", _accepted)).values(), _JSON)
