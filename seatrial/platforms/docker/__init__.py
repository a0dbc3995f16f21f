"""Docker: containers of one host as nodes."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "docker-unreachable": Explanation(
        "no Docker daemon answers at {address} ({source}): {problem}",
        "The daemon does not run, the address is wrong, or this account may not use the socket.",
        "Start Docker, or `podman system service --time=0 unix:///run/podman/podman.sock`; set `platform.host`,"
        " `platform.context` or `DOCKER_HOST` to where it listens; add the account to the group `docker`.",
    ),
    "docker-too-old": Explanation(
        "the Docker daemon at {address} has API {version}; {oldest} is the oldest that works",
        "The daemon cannot do what a run needs.",
        "Update to Docker 20.10 or Podman 4, or a newer one.",
    ),
    "docker-image-missing": Explanation(
        "image {image} is not on the Docker host and cannot be pulled: {problem}",
        "The Docker host neither has the image nor gets it from its registry.",
        "Correct `image` in the cluster file, run `docker login` for its registry, or load the image there.",
    ),
    "docker-gpus-missing": Explanation(
        "the Docker daemon at {address} has no {runtime} for GPUs",
        "The cluster file asks for GPUs, and the daemon has no way to give a container any.",
        "Install the NVIDIA Container Toolkit and run `nvidia-ctk runtime configure --runtime=docker`; for CDI"
        " (`platform.cdi`) write the specification with `nvidia-ctk cdi generate` or AMD's `amd-ctk cdi generate`.",
    ),
    "docker-gpus-too-few": Explanation(
        "the containers need {needed} GPUs, and the Docker host has {count}",
        "Every container gets GPUs of its own: `nodes` times `gpus_per_node`, or those in `platform.gpus`.",
        "Lower `nodes` or `gpus_per_node`.",
    ),
    "docker-refused": Explanation(
        "Docker: {action}: {problem}",
        "The daemon refused what the run asked for, such as a limit, a device or a mount. The line has its words.",
        "Change what the line names in `platform` of the cluster file. `seatrial render FILE` shows what is created.",
    ),
    "docker-node-ended": Explanation(
        "the container of {node} {how}",
        "A container ended before its run did: it was stopped or removed, ran out of memory, or could not start its"
        " sshd.",
        "Read `logs/nodes/` of the run; `docker events` shows who removed it. Nobody may stop or remove the containers"
        " of a run that is up.",
        formerly=("docker-node-gone",),
    ),
    "docker-no-address": Explanation(
        "the container of {node} runs without an address in the run's network, or without a published port",
        "The daemon did not connect the container, or it ended just then.",
        "Read the daemon's log. `docker network inspect` and `docker port` show what there is while a run is up.",
    ),
    "docker-nodes-silent": Explanation(
        "{nodes} did not answer within {limit_s} s (start_timeout_s) at {address}",
        "The containers run, and their sshd cannot be reached from this machine.",
        "Read `logs/nodes/` of the run. Where the Docker host is another machine, its firewall must let the port pass.",
    ),
}

register(REASONS)
