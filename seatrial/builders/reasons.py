"""Reasons of image builds and registries."""

from seatrial.model.reason import Explanation, register

_BUILD = "image {image}: {stage}: {problem} ({log})"

REASONS = {
    "image-missing": Explanation(
        "image {image} does not exist: its registry has no such name or tag; push it, or correct image in the cluster"
        " file",
        "The registry answered, and it does not have the image that the cluster file names.",
        "Push the image, or correct `image` in the cluster file.",
        formerly=("pod-image-not-found",),
    ),
    "builder-missing": Explanation(
        "{program} is not installed: {remedy}",
        "The builder of the image is not installed on this machine.",
        "Install it, or set another `builder` in the cluster file.",
    ),
    "image-build-failed": Explanation(
        _BUILD,
        "The build ended with an error of unknown cause. The line has the last output of the build.",
        "Read the log that the line names.",
    ),
    "image-build-time-limit": Explanation(
        _BUILD,
        "The build took longer than `image.timeout_s`, or than the build service allows. Nothing of it runs any more.",
        "Raise `image.timeout_s`, or build on a larger machine.",
        formerly=("image-build-timeout",),
    ),
    "image-no-digest": Explanation(
        "image {image}: {builder} reports success and no digest of the image ({log})",
        "The build succeeded, and its result cannot be identified.",
        "buildah: check the free space and the owner of its storage. Cloud Build: list the image under `images` in"
        " `cloudbuild.yaml`. docker: update buildx.",
    ),
    "google-login-missing": Explanation(
        "the Google credentials are missing: {problem}; run gcloud auth application-default login",
        "Cloud Build needs application default credentials, and this machine has none that work.",
        "Run `gcloud auth application-default login`, or set `GOOGLE_APPLICATION_CREDENTIALS`.",
    ),
    "bucket-foreign": Explanation(
        "bucket {bucket} belongs to another project than {project}; set image.bucket",
        "The default name of the bucket for sources is taken by another project. No source was sent there.",
        "Set `image.bucket` to a bucket of your own.",
    ),
    "registry-login": Explanation(
        "registry {registry} {refusal}: docker login {login}",
        "The registry does not show the image to this machine: it has no login, or one that expired or may not read"
        " it.",
        "Run the `docker login` of the line on this machine, with an account that may read the repository.",
        formerly=("registry-login-rejected", "registry-forbidden"),
    ),
    "registry-credential-helper": Explanation(
        "the credential helper for {registry} failed: {problem}",
        "The program that `~/.docker/config.json` names for this registry did not return credentials.",
        "Run `docker-credential-NAME list` by hand, or remove the helper from `~/.docker/config.json`.",
    ),
    "registry-unreachable": Explanation(
        "registry {registry} does not answer: {problem}",
        "The registry sent no answer, or one that is not of a registry.",
        "Check the name of the registry, DNS, the proxy and the firewall of this machine.",
    ),
    "registry-token-insecure": Explanation(
        "registry {registry} sends this machine to {address} for its token, which is not https",
        "Credentials would cross the network unencrypted, so they were not sent.",
        "Correct the token service in the configuration of the registry.",
    ),
    "image-build-wrong-platform": Explanation(
        _BUILD,
        "The machine or the base image does not support the requested platform.",
        "Correct `platforms`, use a base image for that platform, or register qemu.",
    ),
    "image-build-quota": Explanation(
        _BUILD,
        "A limit was reached: disk space, the rate limit of a registry, or the CPUs of Cloud Build.",
        "Free disk space, log in to the registry for a higher limit, or request more quota.",
    ),
    "image-build-base-image-access": Explanation(
        _BUILD,
        "The base image cannot be pulled.",
        "Log in to its registry (NGC for nvcr.io), correct `BASE`, or use a mirror of it.",
    ),
    "image-build-docker-daemon": Explanation(
        _BUILD,
        "The Docker daemon does not run, or this account may not use it.",
        "Start Docker, add the account to the group `docker`, or use the builder `buildah` or `cloud-build`.",
    ),
    "image-build-network": Explanation(
        _BUILD,
        "The build could not reach an address that it needs.",
        "Check DNS, proxy (`args: {HTTPS_PROXY: ...}`) and firewall of the machine that builds.",
    ),
    "image-build-permission": Explanation(
        _BUILD,
        "The account that builds may not build, read the source, or write to the repository.",
        "Grant the permission that the line names to that account.",
    ),
    "image-build-file-mode": Explanation(
        _BUILD,
        "A file of the build context has a mode that does not let the build read or run it.",
        "Run `chmod` on the file before the build or in the Dockerfile, or set another `USER`.",
    ),
}

register(REASONS)
