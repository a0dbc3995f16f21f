"""What builders say when they fail, in their own words, and what is made of it."""

import pytest

from seatrial.builders.failures import CAUSES, build_failure
from seatrial.model.reason import Reason
from seatrial.runs.explanations import CATALOG

LINES_BY_CAUSE = {
    "permission": [
        "denied: Permission \"artifactregistry.repositories.uploadArtifacts\" denied on resource",
        "PERMISSION_DENIED 403 POST https://cloudbuild.googleapis.com/v1/...: The caller does not have permission",
        "ERROR: failed to push r.example.com/x: unexpected status: 403 Forbidden",
        "#9 ERROR: failed to push r.example.com/x: failed to authorize: failed to fetch oauth token: 401 Unauthorized",
        "403 me@example.com does not have storage.buckets.create access to the Google Cloud project.",
        "Error: pushing image: writing blob: unauthorized: authentication required",
    ],
    "docker daemon": [
        "ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        "dial unix /var/run/docker.sock: connect: permission denied",
    ],
    "file mode": [
        "./run: Permission denied",
        "/bin/sh: 1: ./run: Permission denied",
        'OCI runtime create failed: exec: "./run": permission denied: unknown',
    ],
    "base image access": [
        "#3 ERROR: failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
        "ERROR: failed to solve: nvcr.io/nvidia/pytorch:26.01-py3: failed to resolve source metadata: unauthorized",
        "pull access denied for foo/bar, repository does not exist or may require 'docker login': denied",
        "Error response from daemon: manifest for debian:nope not found: manifest unknown",
        "Error: creating build container: initializing source docker://nvcr.io/x: reading manifest 1 in nvcr.io/x",
        "Error: error creating build container: initializing source docker://r.io/a: pinging registry",
    ],
    "quota": [
        "write /var/lib/docker/x: no space left on device",
        "toomanyrequests: You have reached your pull rate limit",
        "RESOURCE_EXHAUSTED Quota exceeded for quota metric 'Build requests'",
        "FAILED_PRECONDITION: due to quota restrictions, Cloud Build cannot run builds in this region",
    ],
    "time limit": ["status: TIMEOUT", "DEADLINE_EXCEEDED: context deadline exceeded"],
    "wrong platform": [
        "exec /bin/sh: exec format error",
        "no match for platform in manifest: not found",
        "no matching manifest for linux/arm64 in the manifest list entries",
        "choosing an image from manifest list: no image found in manifest list for architecture arm64, OS linux",
        "WARNING: image platform (linux/amd64) does not match the expected platform (linux/arm64)",
        "ERROR: Multiple platforms feature is currently not supported for docker driver.",
    ],
    "network": [
        "dial tcp: lookup registry.example.com: no such host",
        "E: Failed to fetch http://mirror.example.com/debian/x.deb",
        "Temporary failure resolving 'mirror.example.com'",
        "E: Failed to fetch http://mirror.example.com/debian/x.deb  403  Forbidden [IP: 10.0.0.1 3128]",
        "  Could not connect to mirror.example.com:80 (151.101.2.132), connection timed out",
        "curl: (28) Connection timed out after 300002 milliseconds",
        "curl: (7) Failed to connect to github.com port 443: Connection refused",
        "ReadTimeoutError: HTTPSConnectionPool(host='mirror.example.com', port=443): Read timed out. (read timeout=15)",
        "dial tcp 151.101.2.132:443: i/o timeout",
        "net/http: TLS handshake timeout",
        "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    ],
}  # fmt: skip


def failure(output: str) -> Reason:
    return build_failure("r.example.com/x:1", "the build failed", output, "image-build.log")


@pytest.mark.parametrize(
    ("cause", "line"), [(cause, line) for cause, lines in LINES_BY_CAUSE.items() for line in lines]
)
def test_the_cause_is_named_with_its_line_and_the_next_step(cause: str, line: str) -> None:
    reason = failure(f"Step 1/9 : FROM x\n ---> {line}\nERROR\n")
    assert reason.code == f"image-build-{cause.replace(' ', '-')}"
    problem = str(reason.values["problem"])
    assert problem.startswith(f"{cause}: ")
    assert line[:40] in problem
    assert "; next: " in problem
    assert "\n" not in reason.sentence


def test_every_cause_has_a_code() -> None:
    codes = {f"image-build-{cause.name.replace(' ', '-')}" for cause in CAUSES}
    assert len(codes) == len(CAUSES)
    others = {"image-build-failed", "image-build-time-limit"}
    assert codes | others == {code for code in CATALOG if code.startswith("image-build-")}


def test_last_output_line_is_the_problem_of_an_unknown_failure() -> None:
    reason = failure("Step 1\n\nmake: *** [all] Error 2\n\n")
    assert (reason.code, reason.values["problem"]) == (
        "image-build-failed",
        "make: *** [all] Error 2",
    )
    assert failure("").values["problem"] == "it printed nothing"


def test_only_a_cause_near_the_end_of_the_output_counts() -> None:
    output = (
        "Err:1 http://mirror 403 Forbidden\nGet:2 http://mirror.example.com\n" + 40 * "Setting up\n"
    )
    assert (
        failure(f"{output}write /x: no space left on device\nexit code: 1\n").code
        == "image-build-quota"
    )
    assert failure(f"{output}make: *** [all] Error 2\n").code == "image-build-failed"


def test_long_lines_are_cut() -> None:
    assert len(str(failure("x" * 10_000).values["problem"])) == 300
