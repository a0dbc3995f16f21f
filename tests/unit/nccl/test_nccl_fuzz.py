"""Whatever the text: the project's own error or sweeps that are valid JSON, and healthy logs survive mutation."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.model.errors import SeatrialError
from seatrial.nccl import RowReader, classify, file_outcome, parse_file, parse_text, render, transport

LOGS = Path(__file__).parents[2] / "golden" / "nccl-logs"
TEXTS = {path.stem: path.read_text() for path in sorted(LOGS.glob("*.log")) if path.stat().st_size < 8_000}
LINES = sorted({line for text in TEXTS.values() for line in text.splitlines()})
JSON = (
    '{"version":3,"args":["all_reduce_perf"],"env":["A=b"],"config":{"devices":[{"rank":0}]},"results":['
    '{"size":8,"count":2,"type":"float","redop":"sum","root":"    -1",'
    '"out_of_place":{"time":1.0,"alg_bw":2.0,"bus_bw":3.0,"nwrong":0.0},"in_place":null}],'
    '"out_of_bounds":{"count":0,"okay":"true"},"average_bus_bandwidth":{"bandwidth":"nan"},"errors":[""]}'
)

HOSTILE = st.sampled_from(
    [
        *("1e999", "-nan", "inf", "9" * 400, "1_0_", "_", "١٢", "N/A", "0x10", "-1", "#", "|", ",", ":", "\x00"),
        *("[1,0]<stdout>:", "{", '{"log":', "host:1:2 [0] NCCL INFO ", "-" * 40, "Rank", "size", "busbw", "float"),
        *("8 2 float", "Out of bounds values :", "Avg bus bandwidth :", "Test NCCL failure", "USAGE: x_perf"),
        *("\x1b[", "\r", "…"),
    ]
)
WORDS = st.lists(st.one_of(HOSTILE, st.text(max_size=12), st.sampled_from(LINES)), max_size=40)


def _holds(text: str) -> None:
    """Sweeps that are JSON and render, or the project's own error; the helpers never fail at all."""
    try:
        sweeps = parse_text(text)
    except SeatrialError as error:
        assert "\n" not in str(error)
    else:
        assert sweeps
        assert json.loads(json.dumps([sweep.to_dict() for sweep in sweeps], allow_nan=False))
        assert file_outcome(sweeps) in ("ok", "failed", "truncated", "error")
        assert render(sweeps)
    lines = text.splitlines()
    assert len(classify(lines)) <= 64
    transport(lines)
    reader = RowReader()
    for line in lines:
        reader.feed(line)


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=400))
def test_any_text(text: str) -> None:
    _holds(text)


@settings(deadline=None, max_examples=150)
@given(WORDS, st.sampled_from([" ", "\n", "", "  "]))
def test_words_of_real_logs_in_any_order(words: list[str], glue: str) -> None:
    _holds(glue.join(words))


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_mutated_logs(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 200)))
        text = (
            text[:start]
            + data.draw(st.one_of(HOSTILE, st.text(max_size=20), st.just(text[start:end] * 2)))
            + text[end:]
        )
    _holds(text)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, len(JSON)), st.integers(0, 40), st.one_of(HOSTILE, st.text(max_size=8)))
def test_mutated_json(start: int, length: int, insert: str) -> None:
    _holds(JSON[:start] + insert + JSON[start + length :])


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=600))
def test_any_bytes(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(content)
        file.flush()
        try:
            sweeps = parse_file(file.name)
        except SeatrialError as error:
            assert file.name in str(error)
        else:
            json.dumps([sweep.to_dict() for sweep in sweeps], allow_nan=False)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([name for name, text in TEXTS.items() if "Out of bounds values : 0 OK" in text]), st.data())
def test_foreign_lines_change_no_number(name: str, data: st.DataObject) -> None:
    """Lines of NCCL, ssh or the kernel between any lines of a log leave its rows alone."""
    lines = TEXTS[name].splitlines()
    foreign = [
        "gpu-9:1:2 [0] NCCL INFO Channel 00/02 : 0 1",
        "Warning: Permanently added 'a' to the list of known hosts.",
        "",
    ]
    for _ in range(data.draw(st.integers(1, 5))):
        lines.insert(data.draw(st.integers(0, len(lines))), data.draw(st.sampled_from(foreign)))
    assert [s.rows for s in parse_text("\n".join(lines))] == [s.rows for s in parse_text(TEXTS[name])]
