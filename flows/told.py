"""What the steps say, kept with the flow run."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging.handlers import APILogHandler

from seatrial.progress import Discreet
from seatrial.redact import Secrets


@contextmanager
def told_to_prefect(secrets: Secrets | None = None) -> Iterator[None]:
    """Whoever started the run and whatever Prefect's settings say; without `secrets`, or those of the environment."""
    logger, handler = logging.getLogger("seatrial"), APILogHandler()
    handler.setFormatter(Discreet("%(message)s", secrets or Secrets.of(os.environ)))
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)  # steps say themselves that they have ended
    try:
        yield
    finally:
        logger.removeHandler(handler)
