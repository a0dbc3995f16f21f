"""What the API server refuses, in our own words. Pure."""

import json
from contextlib import suppress
from typing import Any

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.model.reason import Reason
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
            return MissingError(Reason.of("not-logged-in", doing=doing, message=message))
        case 403:
            return MissingError(Reason.of("forbidden", doing=doing, namespace=namespace, message=message))
        case 404 if not _api_message(error):  # no words of the API server's: nothing is served there any more
            return UnknownKindError(Reason.of("kind-gone", doing=doing))
        case 404 if "namespaces" in message:
            return MissingError(Reason.of("namespace-missing", doing=doing, message=message, namespace=namespace))
        case _ if "trainingRuntime must be created" in message:
            return RuntimeUnseenError(Reason.of("api-server-refused", doing=doing, message=message))
        case _:
            return LaunchError(Reason.of("api-server-refused", doing=doing, message=message))


def _message(error: Any) -> str:
    """What the API server said, else the status."""
    return _api_message(error) or f"{error.status} {error.reason}"


def _api_message(error: Any) -> str | None:
    with suppress(ValueError, TypeError, AttributeError, KeyError):
        return short(json.loads(error.body)["message"])
    return None


def short(error: object) -> str:
    text = one_line(error)
    return text if len(text) < 400 else f"{text[:400]}..."
