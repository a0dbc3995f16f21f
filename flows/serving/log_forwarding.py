"""What the steps say, kept with the flow run."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging.handlers import APILogHandler

from seatrial.runs.progress import RedactingFormatter
from seatrial.text.redact import Secrets

_ENGINE = ("prefect", "prefect.flow_runs", "prefect.task_runs")  # the loggers that Prefect's settings give handlers


@contextmanager
def forward_logs(secrets: Secrets | None = None) -> Iterator[None]:
    """Whoever started the run and whatever Prefect's settings say; without `secrets`, or those of the environment."""
    logger, handler = logging.getLogger("seatrial"), APILogHandler()
    known = secrets or Secrets.of(os.environ)
    handler.setFormatter(RedactingFormatter("%(message)s", known))
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)  # steps say themselves that they have ended
    try:
        with _redacted(known):
            yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _redacted(secrets: Secrets) -> Iterator[None]:
    """What Prefect's engine says of the run by itself, the traces of its errors among it, goes without secrets too."""
    formatter = RedactingFormatter("%(message)s", secrets)

    def plain(record: logging.LogRecord) -> bool:
        record.msg, record.args = formatter.format(record), ()
        record.exc_info = record.exc_text = None
        return True

    handlers = {each for name in _ENGINE for each in logging.getLogger(name).handlers}
    for each in handlers:
        each.addFilter(plain)
    try:
        yield
    finally:
        for each in handlers:
            each.removeFilter(plain)
