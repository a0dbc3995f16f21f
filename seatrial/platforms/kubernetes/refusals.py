"""What the API server refuses, in our own words. Pure."""

import json
from contextlib import suppress
from typing import Any

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.text.lines import one_line


class UnknownKindError(MissingError):
    """The cluster does not know a kind of object."""


class RuntimeUnseenError(LaunchError):
    """Kubeflow Trainer has not seen the runtime of a TrainJob."""


def refused(doing: str, namespace: str, error: Any) -> SeatrialError:
    """What the API server has against it, and what to do. `error` is the client's ApiException."""
    message = _message(error)
    match error.status:
        case 401:
            return MissingError(f"cannot {doing}: the API server does not know us: log in again ({message})")
        case 403:
            return MissingError(f"may not {doing} in namespace {namespace}: {message}")
        case 404 if not _said(error):  # no words of the API server's: nothing is served there any more
            return UnknownKindError(f"cannot {doing}: the cluster does not know that kind any more")
        case 404 if "namespaces" in message:
            return MissingError(f"cannot {doing}: {message}: kubectl create namespace {namespace}")
        case _ if "trainingRuntime must be created" in message:
            return RuntimeUnseenError(f"cannot {doing}: {message}")
        case _:
            return LaunchError(f"cannot {doing}: {message}")


def _message(error: Any) -> str:
    """What the API server said, else the status."""
    return _said(error) or f"{error.status} {error.reason}"


def _said(error: Any) -> str | None:
    with suppress(ValueError, TypeError, AttributeError, KeyError):
        return short(json.loads(error.body)["message"])
    return None


def short(error: object) -> str:
    text = one_line(error)
    return text if len(text) < 400 else f"{text[:400]}..."
