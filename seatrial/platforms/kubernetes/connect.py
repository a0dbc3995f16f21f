"""Which API server to talk to, and as whom: a kubeconfig's context, or the pod that this runs in."""

import os
from typing import Any

from yaml import YAMLError

from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.refusals import short


def connect(context: str | None) -> Any:
    """The API client of the kubeconfig's context, or of the pod that this runs in. Raises MissingError."""
    from kubernetes import client, config

    configuration = client.Configuration()
    configuration.retries = False  # ours say what they wait for
    try:
        if not context and config.incluster_config.SERVICE_HOST_ENV_NAME in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(_kubeconfig(), context=context, client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise MissingError(_lacking(context)) from error
    except (ValueError, TypeError, KeyError, AttributeError, YAMLError) as error:
        raise MissingError(
            Reason.of("no-kubeconfig", problem=f"the kubeconfig cannot be read: {short(error)}")
        ) from error
    return client.ApiClient(configuration)


def _kubeconfig() -> str:
    """One path or several; the library itself looks at the variable once, when it is imported."""
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _lacking(context: str | None) -> str:
    """What the kubeconfig lacks, and what it has."""
    from kubernetes import config

    try:
        contexts, _ = config.list_kube_config_contexts(_kubeconfig())
    except (config.ConfigException, OSError) as error:
        return Reason.of("no-kubeconfig", problem=f"{short(error)} (KUBECONFIG, ~/.kube/config), and this is no pod")
    known = f"known: {', '.join(sorted(each['name'] for each in contexts))}"
    problem = f"platform.context {context!r} is not in the kubeconfig" if context else "no context"
    return Reason.of("kube-context-unknown", problem=problem, known=known)
