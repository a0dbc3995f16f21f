"""The command `seatrial` within this process."""

import sys

import pytest

from seatrial.cli.app import main


def exit_status(*words: object) -> int:
    """The exit status of `seatrial` with these words; what it prints is captured as usual."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(sys, "argv", ["seatrial", *map(str, words)])
        main()
    return int(ended.value.code or 0)
