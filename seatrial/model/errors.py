"""The errors that seatrial raises on purpose; each message names the thing, the place and the next
step.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from seatrial.model.reason import Reason, join, placed, uncoded


class SeatrialError(Exception):
    """Base of every error that seatrial raises on purpose; its argument is a Reason, or a text that
    has no code.
    """

    @classmethod
    def of(cls, code: str, /, **values: object) -> Self:
        """Return the error whose reason has that code and those values."""
        return cls(Reason.of(code, **values))

    @property
    def reason(self) -> Reason:
        """The reason that it was raised with; one without a code if that was a text."""
        return (
            self.args[0] if self.args and isinstance(self.args[0], Reason) else uncoded(str(self))
        )


def classed(error: BaseException) -> str:
    """Return the class and the message of an error: "ValueError: no number"."""
    return f"{type(error).__name__}: {error}"


def described(error: BaseException) -> str:
    """Return the message of an error, with its class where it is not one of seatrial's."""
    return str(error) if isinstance(error, SeatrialError) else classed(error)


class InputError(SeatrialError):
    """Bad input; the message names file, field and the legal values.

    The command line exits with status 2.
    """


@contextmanager
def os_errors_named(what: str, remedy: str = "") -> Iterator[None]:
    """Raise InputError in place of an OSError of the block: "--out x: cannot be written: No space
    left on device", with the remedy behind it.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: {error.strerror or error}{remedy}") from error


class FileError(InputError):
    """The errors of one file, each a line of its own."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


class NothingFoundError(InputError):
    """A log holds neither a result nor a known failure."""


class LaunchError(SeatrialError):
    """A testbed could not be brought up; the message names the cause."""


class MissingError(SeatrialError):
    """A prerequisite is missing, so a check is `not_run`; the message names it and how to get
    it.
    """


class RemoteError(SeatrialError):
    """A command on a node could not be started or its connection broke."""


class FloodError(RemoteError):
    """A node printed more than allowed, and its command was ended."""


class NodesError(SeatrialError):
    """Nodes are to blame; `evidence` is a reason by node name."""

    def __init__(self, evidence: Mapping[str, Reason]) -> None:
        super().__init__(join(placed(node, why) for node, why in evidence.items()))
        self.evidence = dict(evidence)
