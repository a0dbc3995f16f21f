"""Read results of other test tools as checks, one for each file. Pure.

The tools are `dcgmi diag` (text, and JSON of DCGM 2 to 4), `nvbandwidth` (text and JSON), perftest (`ib_write_bw` and
the like) and `nvidia-smi -q`. A tool's verdict on its own tests is taken over; its numbers are recorded, without a
reference.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict, worst
from seatrial.text.printable import printable

MAX_TEXT = 16 << 20  # characters of a file that are looked at
_MAX_SHOWN, _MAX_WORDS, _MAX_MEASUREMENTS = 4, 200, 1000
Result = tuple[str, str]  # of one test of a tool: a verdict, and of which device


def read_tool(text: str, name: str) -> Check | None:
    """Read the output of a tool as a check; None if no known tool has printed it."""
    text = text[:MAX_TEXT]
    if text.lstrip()[:1] in ("{", "["):
        return _of_json(text, name)
    for marks, read in _TOOLS:
        if marks.search(text):
            return read(text, name)
    return None


def _of_json(text: str, name: str) -> Check | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for key, value in document.items() if isinstance(document, dict) else ():
        if "DCGM" in key and "iagnos" in key:
            return _check("dcgmi diag", name, [(each.verdict, each.words) for each in _dcgm_results(value)])
        if key == "nvbandwidth" and isinstance(value, dict):
            return _nvbandwidth_json(value, name)
    return None


def _check(tool: str, name: str, results: Sequence[Result], measurements: Sequence[Measurement] = ()) -> Check:
    """The worst of a tool's own results, with those that are bad; without any it did not finish."""
    kept = tuple(measurements[:_MAX_MEASUREMENTS])
    if not results and not kept:
        return Check(name, Verdict.INCONCLUSIVE, Reason.of("tool-unfinished", tool=tool))
    verdict = worst([Verdict(each) for each, _ in results] or [Verdict.PASS])
    bad = list(dict.fromkeys(printable(words)[:_MAX_WORDS] for each, words in results if each != "pass"))
    if verdict is Verdict.PASS:
        summary = f"{len(results)} of {len(results)} without a fault" if results else f"{len(kept)} measurements"
        return Check(name, verdict, f"{tool}: {summary}", measurements=kept)
    more = f" and {len(bad) - _MAX_SHOWN} more" if len(bad) > _MAX_SHOWN else ""
    code = "tool-wrong-data" if verdict is Verdict.CORRUPT else "tool-says-bad"
    reason = Reason.of(code, tool=tool, what="; ".join(bad[:_MAX_SHOWN]) + more)
    return Check(name, verdict, reason, measurements=kept)


_VERDICTS = {"pass": "pass", "fail": "fail", "warn": "degraded"}


def _dcgm(text: str, name: str) -> Check:
    """The rows `| GPU Memory | Fail - GPU: 0 |` and, without a name, more results of the same test."""
    results: list[Result] = []
    test, in_message = "", False
    for cells in (line.split("|")[1:3] for line in text.splitlines() if line.lstrip().startswith("|")):
        label, value = (cell.strip() for cell in cells) if len(cells) == 2 else ("", "")
        outcome = re.match(r"(pass|fail|warn|skip)\w*(?: - (.{1,80}))?$", value, re.IGNORECASE)
        if label in ("Warning", "Error", "Info") or (in_message and not label and not outcome):
            in_message = True
            if results and results[-1][0] != "pass" and label != "Info":
                results[-1] = results[-1][0], f"{results[-1][1]}{': ' if label else ''}{value}"
            continue
        test, in_message = label or test, False
        if outcome and (verdict := _VERDICTS.get(outcome[1].lower())):
            results.append((verdict, f"{test} {outcome[1].lower()}{f' on {outcome[2]}' if outcome[2] else ''}"))
    return _check("dcgmi diag", name, results)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one test of `dcgmi diag`, and the numbers of its GPUs; none where it names no GPU."""

    verdict: str
    words: str
    gpus: tuple[int, ...]


def read_diagnoses(text: str) -> list[Diagnosis]:
    """The results in the JSON that `dcgmi diag -j` prints, which may stand behind warnings; none in another text."""
    try:
        document = json.JSONDecoder().raw_decode(text[:MAX_TEXT], max(text.find("{"), 0))[0]
    except (ValueError, RecursionError):
        return []
    values = document.values() if isinstance(document, dict) else ()
    return [diagnosis for value in values for diagnosis in _dcgm_results(value)]


def _dcgm_results(document: Any) -> Iterator[Diagnosis]:
    for category in _items(document, "test_categories"):
        for test in _items(category, "tests"):
            for result in _items(test, "results"):
                status = str(result.get("status", "")).lower()
                verdict = next((verdict for word, verdict in _VERDICTS.items() if status.startswith(word)), None)
                group = result.get("entity_group", "GPU")
                ids = next((result[key] for key in ("gpu_ids", "gpu_id", "entity_id") if key in result), "?")
                warnings = [_warning_text(each) for each in _listed(result.get("warnings"))]
                words = ": ".join((f"{test.get('name')} {status} on {group} {ids}", *warnings[:1]))
                numbers = re.findall(r"\d{1,4}", str(ids)) if group == "GPU" else []
                if verdict:
                    yield Diagnosis(verdict, printable(words)[:_MAX_WORDS], tuple(map(int, numbers)))


def _warning_text(warning: Any) -> str:
    return str(warning.get("warning", "")) if isinstance(warning, dict) else str(warning)


def _items(value: Any, key: str) -> list[dict[str, Any]]:
    return [item for item in _listed(value.get(key) if isinstance(value, dict) else None) if isinstance(item, dict)]


def _listed(value: Any) -> list[Any]:
    return value[:4096] if isinstance(value, list) else [] if value is None else [value]


_SUM = re.compile(r"SUM (\w{1,80}) (\d{1,9}(?:\.\d{1,6})?)\s*$")
_WRONG_DATA = re.compile(r"Invalid value when checking the pattern|ASSERT in expression h_errorFlag")
_NV_ERROR = re.compile(r"\[?(?:CUDA_ERROR_\w{1,60}|NVML_ERROR_\w{1,60})\]?.{0,160}")


def _nvbandwidth(text: str, name: str) -> Check:
    test, results, measurements = "", [], []
    for line in text.splitlines():
        if line.startswith("Running "):
            test = line.removeprefix("Running ").strip(" .")[:80]
        elif _WRONG_DATA.search(line):
            results.append(("corrupt", f"{test}: data was wrong after a copy"))
        elif match := _NV_ERROR.search(line):
            results.append(("fail", f"{test}: {match[0]}"))
        elif match := _SUM.match(line):
            measurements.append(_bandwidth(match[1], float(match[2])))
    return _check("nvbandwidth", name, results, measurements)


def _bandwidth(test: str, gb_s: float) -> Measurement:
    return Measurement("copy_bandwidth_sum", gb_s, "GB/s", Subject("node", "node"), {"test": test}, (gb_s,))


def _nvbandwidth_json(document: dict[str, Any], name: str) -> Check:
    results, measurements = [], []
    for test in _items(document, "testcases"):
        status, total = str(test.get("status", "")), test.get("sum")
        if status.lower() in ("error", "failed"):
            wrong = _WRONG_DATA.search(str(test))
            what = f"{test.get('name')}: {test.get('error') or status}"
            results.append(("corrupt" if wrong else "fail", what))
        elif isinstance(total, int | float) and not isinstance(total, bool):
            measurements.append(_bandwidth(str(test.get("name"))[:80], float(total)))
    return _check("nvbandwidth", name, results, measurements)


_TEST = re.compile(
    r"^[ \t]{0,60}(RDMA_\w{1,20}|Send|Atomic\w{0,20}) (?:Bidirectional )?(BW|Latency|Post List BW) Test", re.M
)
_DEVICE = re.compile(r"\bDevice\s{0,40}: (\S{1,60})")
_UNITS = {"gb/sec": 1 / 8, "gbps": 1 / 8, "mb/sec": 1e-3, "mib/sec": 2**20 / 1e9, "mibps": 2**20 / 1e9}  # to GB/s
_HEADING = re.compile(r"#bytes\s+#iterations\s+(.{1,200})")
_ROW = re.compile(r"\A\s*+(\d{1,12}+)\s++(\d{1,12}+)((?:\s++\d{1,12}+(?:\.\d{1,9}+)?){1,9}+)\s*+\Z")
_RDMA_ERROR = re.compile(
    r".{0,40}?(?:Completion with error.{0,120}|Failed status \d+.{0,160}|Couldn't connect to .{1,80}"
    r"|Unable to (?:init|find|open) .{1,80}|Failed to (?:modify QP|create|connect|exchange).{0,80}"
    r"|IB device .{1,60}not found.{0,40})"
)


def _perftest(text: str, name: str) -> Check:
    """Rows of message size, iterations, and the columns of the heading: peak and average, or latencies."""
    kind, device = _TEST.search(text), _DEVICE.search(text)
    tool = f"perftest {kind[1]} {kind[2]}" if kind else "perftest"
    subject = Subject("node", device[1] if device else "node")
    results: list[Result] = []
    measurements: list[Measurement] = []
    columns: list[str] = []
    for line in text.splitlines():
        if heading := _HEADING.search(line):
            columns = re.findall(r"[\w%. ]*?[\w%.]+\s?\[[\w/]+\]", heading[1])
        elif (row := _ROW.match(line)) and columns:
            values = [float(value) for value in row[3].split()]
            measurements += _of_row(tool, subject, int(row[1]), dict(zip(columns, values, strict=False)))
        elif error := _RDMA_ERROR.match(line):
            results.append(("fail", error[0].strip()))
    return _check(tool, name, results, measurements)


def _of_row(tool: str, subject: Subject, size: int, values: dict[str, float]) -> Iterator[Measurement]:
    conditions: dict[str, str | int | float | bool] = {"test": tool, "message_bytes": size}
    for column, value in values.items():
        words = column.strip().lower()
        unit = words.partition("[")[2].rstrip("]")
        if words.startswith("bw average") and unit in _UNITS:
            gb_s = value * _UNITS[unit]
            yield Measurement("rdma_bandwidth", gb_s, "GB/s", subject, conditions, (gb_s,))
        elif words.startswith("t_typical") and unit == "usec":
            yield Measurement("rdma_latency", value, "us", subject, conditions, (value,), better="lower")


_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8})\s*$")
_YES, _NONE = ("yes", "active"), ("none", "n/a", "[n/a]", "")
_FAULTS = (  # the end of a field's path, the values that are bad (None: a count above 0), and what they mean
    (("remapped rows", "remapping failure occurred"), _YES, "fail", "rows of its memory could not be remapped"),
    (("remapped rows", "pending"), _YES, "degraded", "a remapped row waits for a reset"),
    (("clocks event reasons", "hw slowdown"), _YES, "degraded", "slowed down by hardware"),
    (("hw slowdown", "hw thermal slowdown"), _YES, "degraded", "slowed down by heat"),
    (("hw slowdown", "hw power brake slowdown"), _YES, "degraded", "slowed down by the power brake"),
    (("volatile", "dram uncorrectable"), None, "degraded", "uncorrectable memory errors"),
    (("volatile", "sram uncorrectable parity"), None, "degraded", "uncorrectable SRAM errors"),
    (("volatile", "sram uncorrectable sec-ded"), None, "degraded", "uncorrectable SRAM errors"),
    (("fabric", "state"), ("in progress", "not started"), "fail", "not registered with the fabric manager"),
)


def _nvidia_smi(text: str, name: str) -> Check:
    """Faults that each GPU reports; `GPU requires reset` and `ERR!` stand in place of values."""
    results: list[Result] = []
    for gpu, fields in _gpus(text):
        faults = list(_faults(fields))
        results += [(verdict, f"GPU {gpu}: {what}") for verdict, what in faults] or [("pass", gpu)]
    return _check("nvidia-smi", name, results)


def _gpus(text: str) -> Iterator[tuple[str, dict[tuple[str, ...], str]]]:
    """The fields of each GPU by the headings that they stand under, in small letters."""
    gpu, above = "", list[str]()
    fields: dict[tuple[str, ...], str] = {}
    for line in text.splitlines():
        if match := _GPU.match(line):
            if gpu:
                yield gpu, fields
            gpu, fields, above = match[1], {}, []
            continue
        label, _, value = line.partition(" : ")
        depth = (len(label) - len(label.lstrip())) // 4
        above = [*above[: max(depth - 1, 0)], label.strip().lower()]
        if gpu and value:
            fields[tuple(above)] = value.strip()
    if gpu:
        yield gpu, fields


def _faults(fields: dict[tuple[str, ...], str]) -> Iterator[Result]:
    values = [value.lower() for value in fields.values()]
    if any("requires reset" in value for value in values):
        yield "fail", "it requires a reset"
    if (lost := sum("err!" in value or "unknown error" in value for value in values)) > 0:
        yield "fail", f"{lost} fields cannot be read (ERR!)"
    for path, value in fields.items():
        if path[-1] == "gpu recovery action" and value.lower() not in _NONE:
            yield "fail", f"the driver asks for: {value}"
        if path[-2:] == ("fabric", "status") and value.lower() not in ("success", *_NONE):
            yield "fail", f"fabric status: {value}"
        for end, bad, verdict, what in _FAULTS:
            count = int(value) if bad is None and re.fullmatch(r"\d{1,12}", value) else 0
            if path[-2:] == end and (count if bad is None else value.lower() in bad):
                yield verdict, f"{what} ({count})" if count else what
    widths = {path[-1]: value for path, value in fields.items() if path[-2:-1] == ("link width",)}
    current, widest = (re.fullmatch(r"(\d{1,3})x", widths.get(key, "")) for key in ("current", "max"))
    if current and widest and int(current[1]) < int(widest[1]):
        yield "degraded", f"PCIe x{current[1]} of x{widest[1]}"


_TOOLS = (
    (re.compile(r"^\| Diagnostic +\| Result|^Successfully ran diagnostic for group", re.M), _dcgm),
    (re.compile(r"^nvbandwidth Version", re.M), _nvbandwidth),
    (re.compile(r"#bytes\s+#iterations|" + _TEST.pattern, re.M), _perftest),
    (re.compile(r"^=+NVSMI LOG=+", re.M), _nvidia_smi),
)
