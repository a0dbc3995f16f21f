"""What libraries log while they read an address or send to it quotes the address, which is a secret."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

URLLIB3 = ("urllib3.connectionpool", "urllib3.util.retry")  # both name the path of what they try again
APPRISE = ("apprise",)


@contextmanager
def muted(names: tuple[str, ...]) -> Iterator[None]:
    """Disable those loggers meanwhile."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
