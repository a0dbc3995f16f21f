"""The log of the steps, kept with the flow run."""

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
    """Send the log to Prefect whatever its settings are, without `secrets`, or those of the environment."""
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
    """Remove secrets from the log of Prefect's engine, too, and from its tracebacks."""
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
