"""The command `seatrial` within this process."""

import sys

import pytest

from seatrial.cli.app import main


def command(*words: str) -> int:
    """The exit status of `seatrial` with these words."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(sys, "argv", ["seatrial", *words])
        main()
    return int(ended.value.code or 0)
