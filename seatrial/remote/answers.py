"""Models of the probes' output, with bounds on types and sizes: a broken node may print
anything.
"""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)

MAX_TEXT = 300

Answer = TypeVar("Answer", bound="NodeAnswer")
HardwareId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Unreached = Literal[
    "refused", "timeout", "no-route", "closed", "other-banner", "max-startups", "local"
]


def printable(text: str) -> str:
    """Return the text, at most MAX_TEXT characters of it, without control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:MAX_TEXT])


def shown(output: str) -> str:
    """Return a program's output, shortened for a message."""
    return printable(output) or "nothing was printed"


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT), AfterValidator(printable)]


class NodeAnswer(BaseModel):
    """One JSON object on a line of a probe's output; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Facts(NodeAnswer):
    """Output of seatrial/remote/probes/facts.py.

    `gpu_problem` is the message of nvidia-smi if it fails, `gpu_clock_mhz` the highest SM clock of
    the slowest GPU, `nvlink_domain` names the nodes whose GPUs NVLink connects, `hardware_ids` are
    digests of serials. A version is "" if the package is not installed, None if it is unknown.
    """

    hostname: Text = Field(min_length=1)
    cpus: int = Field(ge=0, le=1_000_000)
    memory_gb: FiniteFloat = Field(ge=0)
    gpus: int | None = Field(ge=0, le=1024)
    gpu_problem: Text = ""
    gpu_model: Text
    gpu_clock_mhz: int | None = Field(ge=0, le=1_000_000)
    nvlink_domain: Text = ""
    hardware_ids: list[HardwareId] = Field(max_length=64)
    cpu_model: Text
    architecture: Text
    mpirun: Text
    sshd: Text | None
    nccl_tests: Text
    versions: dict[Text, Text | None] = Field(max_length=64)


class PeerAnswer(NodeAnswer):
    """One line of seatrial/remote/probes/pairs.py: `error` is empty where SSH to the peer
    worked.
    """

    peer: str
    error: str


class ReachAnswer(NodeAnswer):
    """Output of seatrial/remote/probes/reach.py: the number of peers, and the positions of those
    that failed.
    """

    tried: int = Field(ge=0, le=1_000_000)
    failed: dict[Unreached, list[int]]

    @model_validator(mode="after")
    def _each_peer_once(self) -> Self:
        positions = [place for places in self.failed.values() for place in places]
        if len(set(positions)) < len(positions) or not all(
            0 <= place < self.tried for place in positions
        ):
            raise ValueError("failed: must have a position among those tried, each once")
        return self


class Traffic(NodeAnswer):
    """Bytes and seconds of one direction of a stream."""

    bytes: int = Field(gt=0, lt=1 << 50)
    seconds: FiniteFloat = Field(gt=1e-6)

    @property
    def mb_s(self) -> float:
        """MB/s (1e6 bytes)."""
        return self.bytes / self.seconds / 1e6


class StreamListener(NodeAnswer):
    """First line of seatrial/remote/probes/stream.py: the port for streams, and the token that they
    need.
    """

    port: int = Field(gt=0, lt=1 << 16)
    token: str = Field(pattern="^[0-9a-f]{32}$")


class StreamAnswer(NodeAnswer):
    """Answer of seatrial/remote/probes/stream.py to the request `id`: from the node, and to it."""

    id: int
    out: Traffic
    in_: Traffic = Field(alias="in")


class ProbeError(NodeAnswer):
    """Error of a probe."""

    error: Text


class StreamError(ProbeError):
    """The error of seatrial/remote/probes/stream.py for the request `id`."""

    id: int


def read_answer(model: type[Answer], line: str) -> Answer:
    """Return the answer in a line of JSON.

    Raises ValueError, whose one line names the first field that is wrong.

    pydantic's own parser: it refuses JSON that is nested too deep, for which the standard library's
    recurses.
    """
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(printable(f"{where}: {first['msg']}" if where else first["msg"])) from None


def event_in(line: str, model: type[Answer], name: str = "") -> Answer | None:
    """Return a probe's event in a line, ignoring text before it; None if there is no complete event
    of that name.
    """
    start = line.find(f'{{"event": "{name}')
    try:
        return read_answer(model, line[start:]) if start >= 0 else None
    except ValueError:
        return None
