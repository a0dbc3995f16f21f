"""Read perftest: `ib_write_bw`, `ib_read_lat` and their sisters. Pure."""

import re
from collections.abc import Iterator

from seatrial.model.measurement import Measurement, Subject
from seatrial.readers.documents import Document, finite
from seatrial.readers.report import WRONG_DATA, Lines, Report, corrupt, failed
from seatrial.text.lazy_pattern import lazy

_RDMA = "tool-rdma-failed"
TEST = lazy(
    r"[ \t]{0,60}(RDMA_\w{1,20}|Send|Atomic\w{0,20}) (?:Bidirectional )?(BW|Latency|Post "
    "List BW) Test"
)
_DEVICE = lazy(r"\bDevice\s{0,40}: (\S{1,60})")
_UNITS = {  # to GB/s
    "gb/s": 1.0,
    "gb/sec": 1 / 8,
    "gbps": 1 / 8,
    "mb/sec": 1e-3,
    "mib/sec": 2**20 / 1e9,
    "mibps": 2**20 / 1e9,
}
_HEADING = lazy(r"#bytes\s+#iterations\s+(.{1,200})")
_ROW = lazy(r"\A\s*+(\d{1,12}+)\s++(\d{1,12}+)((?:\s++\d{1,12}+(?:\.\d{1,9}+)?){1,9}+)\s*+\Z")
_RDMA_ERROR = lazy(
    r".{0,40}?(?:Completion with error.{0,120}|Failed status \d+.{0,160}|Couldn't connect to "
    ".{1,80}"
    r"|Unable to (?:init|find|open) .{1,80}|Failed to (?:modify QP|create|connect|exchange).{0,80}"
    r"|IB device .{1,60}not found.{0,40}|Problems with warm up"
    r"|Couldn't (?:allocate|get|listen|open|create|read) .{1,80}"
    r"|Unable to read to socket.{0,40})"
)
_VALIDATION = lazy(r".{0,40}?VALIDATION: FAILED.{0,200}")
_MEGA = 1e6  # MsgRate counts millions
BEGINS = lazy(
    rf"\s{{0,40}}#bytes\s+#iterations|{TEST.pattern}|(?:\w{{1,40}}: )?Couldn't (?:read|get) "
    "remote address"
    r"|\s{0,8}Couldn't connect to [\w.:-]{1,253}:\d{1,5}\s*$"
    r"|\s{0,8}Failed to exchange data between server|\s{0,8}Unable to read to socket"
)
PERFTEST_LINE = lazy(
    r"\A(?:\s{0,40}#bytes\s|\s*+\d{1,12}+\s++\d{1,12}+(?:\s++\d{1,12}+(?:\.\d{1,9}+)?){1,9}+\s*+\Z|-{80,}\s*\Z|\*"
    r"|\s*+(?:Dual-port|Number of qps|Connection type|CQ Moderation|Mtu|Link type|Max inline "
    "data|GID index|rdma_cm QPs"
    r"|Data ex\. method|TX depth|RX depth|Outstand reads|PCIe relax order|ibv_wr\* API|Use ROCm "
    "memory"
    r"|local address|remote address|GID|WARNING: BW peak|Conflicting CPU frequency)\b.{0,300}"
    rf"|{_RDMA_ERROR.pattern}|.{{0,40}}?VALIDATION: )"
)


def read_perftest(lines: Lines) -> Report:
    """Read rows of message size, iterations, and the columns of the heading: peak and average, or
    latencies.
    """
    kind = next(filter(None, map(TEST.match, lines)), None)
    device = next(filter(None, map(_DEVICE.search, lines)), None)
    tool = f"perftest {kind[1]} {kind[2]}" if kind else "perftest"
    subject = Subject("node", device[1] if device else "node")
    both_ways = bool(kind and "Bidirectional" in kind[0])
    results = []
    measurements: list[Measurement] = []
    columns = []
    for line in lines:
        if heading := _HEADING.search(line):
            columns = re.findall(r"[\w%. ]*?[\w%.]+\s?\[[\w/]+\]", heading[1])
        elif (row := _ROW.match(line)) and columns:
            values = [float(value) for value in row[3].split()]
            named = dict(zip(columns, values, strict=False))
            measurements += _of_row(tool, subject, int(row[1]), named, both_ways=both_ways)
        elif wrong := _VALIDATION.match(line):
            results.append(corrupt(WRONG_DATA, wrong[0].strip()))
        elif error := _RDMA_ERROR.match(line):
            results.append(failed(_RDMA, error[0].strip()))
    return Report(tool, results, measurements)


def _of_row(
    tool: str, subject: Subject, size: int, values: dict[str, float], *, both_ways: bool
) -> Iterator[Measurement]:
    """Yield the numbers of a row by the headings of its columns."""
    conditions: dict[str, str | int | float | bool] = {"test": tool, "message_bytes": size}
    if both_ways:
        conditions["bidirectional"] = True
    for column, value in values.items():
        words = column.strip().lower()
        unit = words.partition("[")[2].rstrip("]")
        if words.startswith("bw average") and unit in _UNITS:
            gb_s = value * _UNITS[unit]
            yield Measurement(
                metric="rdma_bandwidth",
                value=gb_s,
                unit="GB/s",
                subject=subject,
                conditions=conditions,
                samples=(gb_s,),
            )
        elif words.startswith("t_typical") and unit == "usec":
            yield Measurement(
                metric="rdma_latency",
                value=value,
                unit="us",
                subject=subject,
                conditions=conditions,
                samples=(value,),
                better="lower",
            )


def read_document(document: Document) -> Report | None:
    """Return the report of `--out_json`; None for another document.

    It does not say whether bandwidths are Gb/s or MiB/s, so they are made from messages a second.
    """
    info = document.get("test_info")
    results = document.get("results")
    if (
        not isinstance(info, dict)
        or not isinstance(results, dict)
        or not isinstance(info.get("test"), str)
    ):
        return None
    words = info["test"][:80].replace("_", " ").removesuffix(" Test")
    both_ways = " Bidirectional" in words
    tool = f"perftest {words.replace(' Bidirectional', '').replace('RDMA ', 'RDMA_')}"
    size, rate, typical = (
        max(0.0, finite(results.get(name)) or 0.0) for name in ("MsgSize", "MsgRate", "t_typical")
    )
    values = (
        {"bw average[GB/s]": rate * _MEGA * size / 1e9} if rate else {"t_typical[usec]": typical}
    )
    subject = Subject("node", str(info.get("Device") or "node")[:60])
    measurements = (
        _of_row(tool, subject, int(size), values, both_ways=both_ways)
        if size and any(values.values())
        else ()
    )
    return Report(tool, (), tuple(measurements))
