"""What Cloud Build is sent: the folder's cloudbuild.yaml, filled in as `gcloud builds submit` does it. Pure."""

import re
from typing import Any

import yaml

from seatrial.builders.config import CloudBuild
from seatrial.errors import InputError

MACHINE = "E2_HIGHCPU_32"
_VARIABLE = re.compile(r"\$\{(_[A-Z0-9_]+)\}|\$(_[A-Z0-9_]+)")

Request = dict[str, Any]  # the Build resource, in JSON's names


def recipe(config: CloudBuild) -> Request:
    """The folder's cloudbuild.yaml, or one docker build where there is none. Raises InputError naming what is wrong."""
    file = config.folder / "cloudbuild.yaml"
    if not file.is_file():
        return _plain(config)
    try:
        found = yaml.safe_load(file.read_text())
        images = found["images"]
    except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
        raise InputError(f"{file}: needs steps and images, as gcloud builds submit reads them ({error!r})") from error
    if not images or "${_TAG}" not in str(images[0]):
        raise InputError(f"{file}: images: the first must end in :${{_TAG}}, where the build's hash goes")
    return dict(found)


def _plain(config: CloudBuild) -> Request:
    image = f"${{_ARTIFACT_REGISTRY}}/{config.name}:${{_TAG}}"
    arguments = ["build", f"--file={config.dockerfile}", f"--tag={image}", "."]
    step = {"name": "gcr.io/cloud-builders/docker", "args": arguments}
    return {"steps": [step], "images": [image], "options": {"automapSubstitutions": True}}


def reference(config: CloudBuild, tag: str) -> str:
    """The first image of the recipe, its variables filled in."""
    values = _substitutions(config, recipe(config), tag)
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2], ""), str(recipe(config)["images"][0]))


def request(config: CloudBuild, tag: str) -> Request:
    """The build without its source, which has no name before it is uploaded."""
    found = recipe(config)
    options = dict(found.get("options", {}))
    return {
        **found,
        "steps": [_with_arguments(step, config) for step in found["steps"]],
        "substitutions": _substitutions(config, found, tag),
        "timeout": found.get("timeout", "7200s") if config.timeout_s == 7200 else f"{config.timeout_s}s",
        "options": {**options, "machineType": config.machine or options.get("machineType", MACHINE)},
    }


def _substitutions(config: CloudBuild, found: Request, tag: str) -> dict[str, str]:
    """The recipe's own, ours and the cluster file's, sorted as gcloud does. One that nothing uses is refused there."""
    ours = {"_ARTIFACT_REGISTRY": config.repository, "_TAG": tag}
    used = str(found["steps"]) + str(found["images"])
    given = {name: value for name, value in ours.items() if f"${{{name}}}" in used}
    return dict(sorted({**found.get("substitutions", {}), **given, **config.substitutions}.items()))


def _with_arguments(step: Request, config: CloudBuild) -> Request:
    """The step; a docker build gets the cluster file's build arguments, before the context that ends its command."""
    words = step.get("args", [])
    if not config.args or words[:1] != ["build"] or "docker" not in step.get("name", ""):
        return step
    given = [f"--build-arg={name}={value.replace('$', '$$')}" for name, value in sorted(config.args.items())]
    return {**step, "args": [*words[:-1], *given, words[-1]]}
