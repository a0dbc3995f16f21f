"""Fragments of a pod that a cluster file may hold, checked by the models of Kubernetes' client."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

Fragment = dict[str, Any]
# Keys that seatrial sets, with what sets them: a field of the cluster file, or seatrial itself.
_OWN_POD = {
    **dict.fromkeys(
        ("automountServiceAccountToken", "containers", "hostname", "restartPolicy", "subdomain"),
        "seatrial",
    ),
    "hostNetwork": "host_network",
    "imagePullSecrets": "image_pull_secrets",
    "nodeName": "target_nodes",
    "nodeSelector": "node_selector",
    "priorityClassName": "priority_class",
    "serviceAccount": "service_account",
    "serviceAccountName": "service_account",
    "tolerations": "tolerations",
}
_OWN_CONTAINER = {
    **dict.fromkeys(
        ("args", "command", "lifecycle", "livenessProbe", "name", "ports", "startupProbe"),
        "seatrial",
    ),
    "env": "env of the cluster file, or secret_env",
    "envFrom": "env of the cluster file, or secret_env",
    "image": "image of the cluster file",
    "imagePullPolicy": "image_pull_policy",
}
_LIST = re.compile(r"[Ll]ist\[(\w+)\]")
_MAP = re.compile(r"[Dd]ict[\[(]")
_SCALARS: dict[str, Any] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "datetime": str,
}


def _checked(model: str, own: Mapping[str, str]) -> AfterValidator:
    """Return a validator of fragments: no key in `own`, and no key that `model` lacks.

    `own` has the cluster file's field for each key, or seatrial.
    """

    def check(fragment: Fragment) -> Fragment:
        for key in fragment:
            if key in own:
                raise ValueError(f"{key} is set by {own[key]}; leave it out here")
        for problem in _problems(fragment, model, ""):
            raise ValueError(problem)
        return fragment

    return AfterValidator(check)


PodFragment = Annotated[Fragment, _checked("V1PodSpec", _OWN_POD)]

ContainerFragment = Annotated[Fragment, _checked("V1Container", _OWN_CONTAINER)]


def _problems(value: object, model: str, where: str) -> Iterator[str]:
    """Yield parts of `value` that do not fit the client's model; models are named as in its
    `openapi_types`.
    """
    if in_list := _LIST.fullmatch(model):
        if not isinstance(value, list):
            yield f"{where} must be a list"
            return
        for i, each in enumerate(value):
            yield from _problems(each, in_list[1], f"{where}[{i}]")
    elif _MAP.match(model):
        is_map = isinstance(value, dict) and all(
            isinstance(each, str | int | float) for each in value.values()
        )
        if not is_map:
            yield f"{where} must be a map of names to values"
    elif model in _SCALARS:
        if not isinstance(value, _SCALARS[model]) or isinstance(value, bool) != (model == "bool"):
            yield f"{where} must be of type {model}"
    elif model != "object":
        yield from _problems_of_object(value, model, where)


def _problems_of_object(value: object, kind: str, where: str) -> Iterator[str]:
    """Yield the unknown keys of an object, and problems in the values of known ones."""
    from kubernetes.client import models  # a second to import, and few files need it

    model = getattr(models, kind)
    types = {model.attribute_map[name]: each for name, each in model.openapi_types.items()}
    if not isinstance(value, dict):
        yield f"{where} must be a map; legal: {', '.join(sorted(types))}"
        return
    for key, each in value.items():
        place = f"{where}.{key}".removeprefix(".")
        if key in types:
            yield from _problems(each, types[key], place)
        else:
            yield f"{place} is unknown to Kubernetes; legal: {', '.join(sorted(types))}"


def merged(base: Fragment, fragment: Fragment) -> Fragment:
    """Merge the fragment into `base`: maps are merged, lists appended, other values replaced.

    Of `nodeSelectorTerms` one is enough for Kubernetes, so each must hold the requirements of both.
    """
    result = dict(base)
    for key, value in fragment.items():
        there = result.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            result[key] = merged(there, value)
        elif there and key == "nodeSelectorTerms":
            result[key] = [merged(own, added) for own in there for added in value]
        elif isinstance(there, list) and isinstance(value, list):
            result[key] = [*there, *value]
        else:
            result[key] = value
    return result
