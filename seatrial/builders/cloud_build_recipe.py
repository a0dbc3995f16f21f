"""The build that Cloud Build is asked for: the folder's cloudbuild.yaml, or one docker build where
there is none, with what the cluster file adds.
"""

import re
from typing import Any

import yaml

from seatrial.config.image import TIMEOUT_S, CloudBuild
from seatrial.model.errors import InputError

MACHINE = "E2_HIGHCPU_32"
_VARIABLE = re.compile(r"\$(?:\{([A-Z0-9_]+)\}|([A-Z0-9_]+))")
Request = dict[str, Any]  # the Build resource, in JSON's names


def recipe(config: CloudBuild) -> Request:
    """Read the folder's cloudbuild.yaml; without one, return one docker build.

    Raises InputError.
    """
    file = config.folder / "cloudbuild.yaml"
    if not file.is_file():
        return _plain(config)
    try:
        document = dict(yaml.safe_load(file.read_text()))
        steps, images = [dict(step) for step in document["steps"]], list(document["images"])
    except (OSError, yaml.YAMLError, TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"{file}: needs steps and images, as gcloud builds submit reads them ({error!r})"
        ) from error
    if not images or "${_TAG}" not in str(images[0]):
        raise InputError(
            f"{file}: images: the first must end in :${{_TAG}}, where the build's hash goes"
        )
    if config.args and not any(map(_takes_arguments, steps)):
        raise InputError(
            f"image.args: {file} has no docker step that begins with `build`, which would take "
            "them; legal: such a"
            " step, or substitutions in place of args"
        )
    if config.machine and _in_a_pool(document):
        raise InputError(
            f"image.machine: {file} builds in a pool, which has machines of its own; leave it out"
        )
    if not re.fullmatch(r"\d+(\.\d+)?s", str(document.setdefault("timeout", f"{TIMEOUT_S}s"))):
        raise InputError(
            f"{file}: timeout: must be seconds, such as 7200s, is {document['timeout']!r}"
        )
    return document


def _plain(config: CloudBuild) -> Request:
    image = f"${{_ARTIFACT_REGISTRY}}/{config.name}:${{_TAG}}"
    arguments = ["build", f"--file={config.dockerfile}", f"--tag={image}", "."]
    step = {"name": "gcr.io/cloud-builders/docker", "args": arguments}
    options = {"automapSubstitutions": True}
    return {"steps": [step], "images": [image], "timeout": f"{TIMEOUT_S}s", "options": options}


def reference(config: CloudBuild, tag: str) -> str:
    """Return the first image of the recipe with its variables filled in.

    Raises InputError for an unknown one.
    """
    build = recipe(config)
    values = {
        "PROJECT_ID": config.own_project,
        "LOCATION": config.own_region,
        **_substitutions(config, build, tag),
    }
    named = str(build["images"][0])
    filled = _VARIABLE.sub(lambda match: str(values.get(match[1] or match[2], match[0])), named)
    if "$" in filled:
        raise InputError(
            f"{config.folder / 'cloudbuild.yaml'}: images: {named}: {filled} is not known before "
            "the build; legal:"
            f" {', '.join(sorted(values))}"
        )
    return filled


def timeout_s(config: CloudBuild) -> int:
    """Return the time limit of the build: the cluster file's, else the recipe's."""
    return config.timeout_s or round(float(recipe(config)["timeout"].rstrip("s")))


def request(config: CloudBuild, tag: str) -> Request:
    """Return the build without its source, which has no name before the upload."""
    build = recipe(config)
    options = build.get("options") or {}
    machine = (
        {}
        if _in_a_pool(build)
        else {"machineType": config.machine or options.get("machineType", MACHINE)}
    )
    return {
        **build,
        "steps": [_with_arguments(step, config) for step in build["steps"]],
        "substitutions": _substitutions(config, build, tag),
        "timeout": f"{timeout_s(config)}s",
        "options": {**options, **machine},
    }


def _substitutions(config: CloudBuild, build: Request, tag: str) -> dict[str, str]:
    """Merge substitutions of recipe, seatrial and cluster file, sorted; Cloud Build refuses unused
    ones.
    """
    ours = {"_ARTIFACT_REGISTRY": config.repository, "_TAG": tag}
    used = {match[1] or match[2] for match in _VARIABLE.finditer(str(build))}
    own = {name: value for name, value in ours.items() if name in used}
    return dict(
        sorted({**(build.get("substitutions") or {}), **own, **config.substitutions}.items())
    )


def _in_a_pool(build: Request) -> bool:
    """Return whether the build runs in a private pool, which refuses a machine type."""
    return not {"pool", "workerPool"}.isdisjoint(build.get("options") or {})


def _takes_arguments(step: Request) -> bool:
    """Return whether the step is a docker build."""
    program = str(step.get("name")).rpartition("/")[2].partition(":")[0]
    return (
        program == "docker"
        and "entrypoint" not in step
        and (step.get("args") or [])[:1] == ["build"]
    )


def _with_arguments(step: Request, config: CloudBuild) -> Request:
    """Add the cluster file's build arguments to a docker build."""
    if not config.args or not _takes_arguments(step):
        return step
    options = [
        f"--build-arg={name}={value.replace('$', '$$')}"
        for name, value in sorted(config.args.items())
    ]
    return {**step, "args": ["build", *options, *step["args"][1:]]}
