"""The table of what can be in a text beside nccl-tests output: what a part looks like, its reader,
what it finds.

The first reader whose mark a line has takes it. A new tool is an entry here, and its reader in the
file of its family.
"""

import logging
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
from seatrial.readers.report import Lines, Reader, Report
from seatrial.system.extensions import loaders, usable
from seatrial.text.lazy_pattern import lazy

log = logging.getLogger("seatrial.readers")

_ROWS = lazy(r"\s{0,40}(?:\||\+[-=]+)")  # of a table that is drawn
_OWN = (
    Reader(
        prints="`dcgmi diag`, text or `--json`",
        finds=(
            "`fail` or `degraded` as its tests say, with the GPU; a setting of the node is no "
            "broken GPU"
        ),
        needles=("| Diagnostic", "Successfully ran diagnostic for group", "-----  "),
        begins=lazy(
            r"\s{0,40}(?:\| Diagnostic +\| Result|Successfully ran diagnostic for group"
            r"|[|+]-{3,9} {1,4}(?:Deployment|Integration|Hardware|Stress) )"
        ),
        read=dcgm.read_diag,
        belongs=_ROWS,
    ),
    Reader(
        prints="`dcgmi health -c`",
        finds="`fail` or `degraded` as it says, with GPU and system",
        needles=("Health Monitor Report", "Overall Health"),
        begins=lazy(r"\s{0,40}(?:\| ?)?Health Monitor Report|\s{0,40}\|.{0,40}Overall Health"),
        read=dcgm.read_health,
        belongs=_ROWS,
    ),
    Reader(
        prints="`dcgmi nvlink -s`",
        finds="`fail` for links that are down, with the GPU or the NVSwitch",
        needles=("NvLink Link Status",),
        begins=dcgm_nvlink.BEGINS,
        read=dcgm_nvlink.read_links,
        belongs=dcgm_nvlink.LINE,
    ),
    Reader(
        prints="`nvidia-smi`",
        finds="`fail` for fields that cannot be read (`ERR!`), `degraded` for uncorrectable errors",
        needles=("| NVIDIA-SMI", ".0 O"),
        begins=nvidia_smi.TABLE_BEGINS,
        read=nvidia_smi.read_table,
        belongs=_ROWS,
    ),
    Reader(
        prints="`nvidia-smi -q`, text or `-x`",
        finds="`fail` for a recovery action, rows that could not be remapped, a fabric that is not up, "
        "fields that cannot be"
        " read; `degraded` for slowdowns, uncorrectable errors, a narrow PCIe link, an unhealthy "
        "fabric",
        needles=("NVSMI LOG", "GPU 0000"),
        begins=lazy(r"=+NVSMI LOG=+|GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8}\s*$"),
        read=nvidia_smi.read_query,
        belongs=nvidia_smi.QUERY_LINE,
    ),
    Reader(
        prints="",
        finds="",
        needles=("<?xml", "<nvidia_smi_log"),
        begins=lazy(r"\s{0,40}<(?:\?xml|nvidia_smi_log)\b"),
        read=nvidia_smi.read_xml,
        belongs=lazy(r"\s{0,40}<"),
    ),
    Reader(
        prints="`nvidia-smi nvlink -s`, `-e`",
        finds="`fail` for a GPU that has lost links, `degraded` for errors and slow links",
        needles=("GPU ",),
        begins=lazy(r"GPU \d{1,3}: (?:.{0,80}\(UUID: GPU-|NVIDIA |Tesla |Quadro |GRID )"),
        read=nvidia_smi.read_nvlink,
        belongs=nvidia_smi.NVLINK_LINE,
    ),
    Reader(
        prints="`nvbandwidth`, text or `--json`",
        finds=(
            "`corrupt` for wrong data, `fail` for errors of CUDA, `degraded` for GPUs and pairs "
            "slower than most"
        ),
        needles=("nvbandwidth Version", "Running "),
        begins=lazy(r"nvbandwidth Version|Running \w{1,60}_(?:ce|sm|copy)\.\s*$"),
        read=nvbandwidth.read_nvbandwidth,
        belongs=nvbandwidth.NVBANDWIDTH_LINE,
    ),
    Reader(
        prints="`p2pBandwidthLatencyTest`",
        finds="`degraded` for a GPU or a pair slower than most others, and a GPU without peer access",
        needles=("P2P (", "P2P C", "P2P="),  # not NCCL's many lines "via P2P/CUMEM"
        begins=p2p_bandwidth.P2P_BEGINS,
        read=p2p_bandwidth.read_p2p,
        belongs=p2p_bandwidth.P2P_LINE,
    ),
    Reader(
        prints="`gpu_burn`",
        finds=(
            "`corrupt` for a GPU with wrong results, `fail` for one that died, `degraded` for "
            "one slower than the others"
        ),
        needles=(
            "compare file: ",
            "Burning for ",
            "Initialized device ",
            "proc'd: ",
            "Couldn't init a GPU test",
        ),
        begins=gpu_burn.BEGINS,
        read=gpu_burn.read_gpu_burn,
        belongs=gpu_burn.LINE,
    ),
    Reader(
        prints="`results.json` of a training, and what `seatrial probe training` prints",
        finds="`corrupt` for a loss that is not finite and ranks that differ; throughput by the catalog",
        needles=('{"event"',),
        begins=training_results.EVENT,
        read=training_results.read_events,
        belongs=training_results.EVENT,
    ),
    Reader(
        prints="logs of Megatron-LM, torchtitan, NeMo, Composer, Hugging Face, lines of JSON",
        finds="`fail` for a loss that is not finite, with rank, node and GPU; `degraded` for steps that "
        "stay slower than"
        " earlier ones, and for a rate below the published one",
        needles=training.NEEDLES,
        begins=training.LINE,
        read=training.read_training,
        belongs=training.LINE,
        patience=100_000,
        is_labelled=False,
    ),
    Reader(
        prints="straggler reports of NVIDIA Resiliency Extension",
        finds="`degraded` for a rank below its threshold, with the node",
        needles=(
            "GPU relative performance",
            "GPU individual performance",
            "STRAGGLER DETECTION WARNING",
        ),
        begins=stragglers.BEGINS,
        read=stragglers.read_stragglers,
        belongs=stragglers.LINE,
        is_labelled=False,
    ),
    Reader(
        prints="times of ranks by Megatron-LM: `StragglerDetector`, `--timing-log-option all`",
        finds="`degraded` for a rank much slower than the others, with its clock",
        needles=("MnRtt/Rnk", "times across ranks", "time across ranks"),
        begins=rank_times.BEGINS,
        read=rank_times.read_rank_times,
        belongs=rank_times.LINE,
        is_labelled=False,
    ),
    Reader(
        prints="`ncclras`",
        finds=(
            "`fail` for a rank that does not answer or reports an error; `inconclusive` for "
            "ranks out of step"
        ),
        needles=("Communicators...", "Group  ", "INCOMPLETE", "MISMATCH", "Job summary"),
        begins=nccl_ras.BEGINS,
        read=nccl_ras.read_ras,
        belongs=nccl_ras.LINE,
    ),
    Reader(
        prints="`ib_write_bw` and its sisters (perftest)",
        finds=(
            "`fail` for an error of a connection or a completion; with `--fabric`, the rate "
            "against that of a port"
        ),
        needles=(
            "#bytes",
            "RDMA_",
            "Send ",
            "Atomic",
            "remote address",
            "Failed to exchange",
            "to socket",
            "Couldn't connect",
        ),
        begins=perftest.BEGINS,
        read=perftest.read_perftest,
        belongs=perftest.PERFTEST_LINE,
    ),
    Reader(
        prints="`ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `ibdev2netdev`, `ibportstate`",
        finds=(
            "`fail` for a port without link or subnet manager, `degraded` for one slower than "
            "the others"
        ),
        needles=("CA '", "hca_id:", "Infiniband device '", "link ", " port ", "# Port info"),
        begins=ibstat.PORT_BEGINS,
        read=ibstat.read_ports,
        belongs=ibstat.PORT_LINE,
    ),
    Reader(
        prints="`iblinkinfo`",
        finds="`degraded` for a link that could be faster or wider, `fail` for one without subnet manager",
        needles=("CA: ", "Switch: ", "RT: ", "==("),
        begins=iblinkinfo.BEGINS,
        read=iblinkinfo.read_links,
        belongs=iblinkinfo.BEGINS,
    ),
    Reader(
        prints="`ibqueryerrors`, `perfquery`",
        finds="`degraded` for errors of a cable; congestion (`PortXmitWait`, discards) is a note",
        needles=("Errors for ", "GUID 0x", "ounters: "),
        begins=port_errors.ERRORS_BEGINS,
        read=port_errors.read_port_errors,
        belongs=port_errors.ERRORS_LINE,
    ),
    Reader(
        prints="`mlxlink -d DEVICE -m`",
        finds=(
            "`fail` for a port without link, `degraded` for lanes without light, faults of "
            "the module, a high error rate"
        ),
        needles=("Operational Info", "mlxlink "),
        begins=mlxlink.MLXLINK_BEGINS,
        read=mlxlink.read_mlxlink,
        belongs=mlxlink.MLXLINK_LINE,
    ),
    Reader(
        prints="`lspci -vv`",
        finds="`degraded` for a GPU, NIC or disk with fewer PCIe lanes than it can have",
        needles=tuple(f" {name}" for name in lspci.CLASSES),
        begins=lspci.BEGINS,
        read=lspci.read_lspci,
        belongs=lspci.LINE,
    ),
    Reader(
        prints="logs of fabric manager and IMEX",
        finds=(
            "`fail` for fatal errors of an NVSwitch and for what they call an error; "
            "non-fatal ones are notes"
        ),
        needles=("[tid ", "nv-fabricmanager[", "nvidia-fabricmanager-start.sh[", "nvidia-imex["),
        begins=fabric.LOG_BEGINS,
        read=fabric.read_log,
        belongs=fabric.LOG_BEGINS,
        patience=1000,
    ),
    Reader(
        prints="`nvidia-imex-ctl -N`, text or `-j`",
        finds="`fail` for a node that is not ready",
        needles=("Connectivity Table Legend", "Node #"),
        begins=fabric.CTL_BEGINS,
        read=fabric.read_imex_ctl,
        belongs=fabric.CTL_LINE,
    ),
)


def _read_json(lines: Lines) -> Report | None:
    document = document_of(lines)
    if document is None:
        return None
    for tool in (dcgm, nvbandwidth, fabric, perftest, training_results):
        report: Report | None = tool.read_document(document)
        if report:
            return report
    return None


_JSON = Reader(
    prints="",
    finds="",
    needles=("{",),
    begins=lazy(r"\{\s*$|\{\s{0,40}\"(?:DCGM|nvbandwidth|nodes|model|throughput)"),
    read=_read_json,
    ends=lazy(r"\A\}|\A\{.*\}\s*\Z"),
)


def _accepted(name: str, reader: Reader) -> Reader:
    """Return the reader of another package; what it cannot read is left to others.

    Raises TypeError.
    """

    def read(lines: Lines) -> Report | None:
        try:
            return reader.read(lines)
        except Exception as error:
            log.warning("reader %s: %.200r", name, error)
            return None

    return replace(reader, read=read)


READERS = (*_OWN, *usable(loaders("seatrial.readers", _accepted)).values(), _JSON)
