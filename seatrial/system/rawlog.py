"""Logs of what others print: without secrets from the first line on, so that a killed run leaves
none behind either.
"""

import logging
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from seatrial.system.private import private_folder, private_opener
from seatrial.text.redact import Redactor, Secrets

log = logging.getLogger("seatrial.logs")

MAX_CHARACTERS = 1 << 30  # bounds the disk


class RawLog:
    """A file, mode 0600, that takes text in any pieces and writes it line by line: redacted, and up
    to MAX_CHARACTERS.

    A log that cannot be written, or not to its end, is a warning: what is measured does not depend
    on it. Without a path nothing is written, only redacted.
    """

    def __init__(self, path: Path | None, secrets: Secrets, *, append: bool = False) -> None:
        self._path = path
        self._redactor = Redactor(secrets)
        self._room = MAX_CHARACTERS
        self._file: IO[str] | None = None
        if path is not None:
            mode = "a" if append else "w"
            try:
                private_folder(path.parent)
                self._file = open(  # noqa: SIM115
                    path,
                    mode,
                    encoding="utf-8",
                    errors="replace",
                    buffering=1,
                    opener=private_opener,
                )
            except OSError as error:
                log.warning("%s cannot be written: %s", path, error.strerror or error)

    def write(self, text: str) -> str:
        """Write what is ready of `text` and of earlier text, redacted, as far as there is room;
        return it.
        """
        return self._keep(self._redactor.feed(text))

    def close(self) -> str:
        """Write and return what was held back."""
        rest = self._keep(self._redactor.end())
        self._end()
        return rest

    def _keep(self, ready: str) -> str:
        if self._file is None or not ready:
            return ready
        try:
            self._file.write(ready[: self._room])
            self._room -= len(ready)
            if self._room < 0:
                self._file.write(
                    f"\n[seatrial: the log ends here, at its bound of {MAX_CHARACTERS} characters]\n"
                )
                self._end()
        except OSError as error:
            log.warning("%s ends early: %s", self._path, error.strerror or error)
            self._end()
        return ready

    def _end(self) -> None:
        file = self._file
        self._file = None
        if file:
            with suppress(OSError):  # what could not be written is tried once more
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def write_log(path: Path, text: str | bytes, secrets: Secrets) -> None:
    """Write a whole log at once."""
    with RawLog(path, secrets) as file:
        file.write(text if isinstance(text, str) else text.decode(errors="replace"))
