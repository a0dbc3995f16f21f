"""What the steps say, kept with the flow run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging.handlers import APILogHandler


@contextmanager
def told_to_prefect() -> Iterator[None]:
    """Whoever started the run and whatever Prefect's settings say."""
    logger, handler = logging.getLogger("seatrial"), APILogHandler()
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)  # steps say themselves that they have ended
    try:
        yield
    finally:
        logger.removeHandler(handler)
