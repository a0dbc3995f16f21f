"""What hosts answer, and what the state of a run on this machine says of them."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from seatrial.platforms.state import NodeAddress, RunState
from seatrial.text.printable import printable

MARK = "seatrial-host: "
_LOG_CHARACTERS = 8 * 1024**2


class Holder(BaseModel):
    """The run that has a host, as its lock says; hostile or broken like everything that comes from a host."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    run: str = Field("", max_length=200)
    user: str = Field("", max_length=200)
    since: int = Field(0, ge=0, le=10**11)

    def __str__(self) -> str:
        run = f"run {printable(self.run)} of {printable(self.user)}" if self.run else "another run"
        return f"{run} since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.since else run


class Answer(BaseModel):
    """What the program on a host prints; which fields are there depends on what was asked."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    problem: str | None = Field(None, max_length=10_000)
    held: Holder | None = None
    port: int | None = Field(None, ge=1, le=65535)
    user: str | None = Field(None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?$")
    address: str = Field("", pattern=r"^[0-9a-fA-F.:]{0,45}(%[A-Za-z0-9]{1,16})?$")
    kernel: str = Field("", pattern=r"^[0-9a-f-]{0,40}$")
    cores: int = Field(1, ge=1, le=100_000)
    remaining: list[int] = Field([], max_length=10_000)
    folder_left: bool = False
    log: str = Field("", max_length=_LOG_CHARACTERS)
    missing: list[str] = Field([], max_length=100)
    free_bytes: int = Field(0, ge=0)
    writable: bool = True
    executable: bool = True
    image_missing: bool = False
    image_problem: str | None = Field(None, max_length=10_000)
    container_left: bool = False


class HostAddress(NodeAddress):
    """Where the run's sshd answers on a host, for which user, and whether this machine needs a tunnel to it.

    `kernel` is the id of the kernel that runs there: hosts with the same one share the `cores` of one machine.
    """

    user: str = Field(min_length=1, max_length=64)
    proxied: bool
    kernel: str = Field("", max_length=40)
    cores: int = Field(1, ge=1, le=100_000)


class BaremetalState(RunState):
    """The hosts, in the order of the hostfile."""

    nodes: tuple[HostAddress, ...] = Field(min_length=1, max_length=10_000)

    @property
    def shared_cores(self) -> int | None:
        """Of the one machine that plays all hosts, as containers or namespaces; None where that is not so."""
        kernels = {node.kernel for node in self.nodes}
        return self.nodes[0].cores if len(self.nodes) > 1 and len(kernels) == 1 and all(kernels) else None
