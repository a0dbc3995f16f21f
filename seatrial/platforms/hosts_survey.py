"""Drafts of cluster files for hosts without a scheduler: bare metal, a Docker host, this machine,
local nodes.
"""

from seatrial.config.cluster import AMD_MODELS, this_machine
from seatrial.model.errors import InputError, LaunchError
from seatrial.platforms.drafts import Choose, Draft, Seen, Site, hardware_fields, open_fields

_GPUS = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
_MOST_GPUS = 1024
_ANSWER_S = 60
_NOT_FOUND = (126, 127)  # exit statuses of a shell if a command is missing


def machine(choose: Choose, site: Site) -> Draft:
    """Draft this machine with its GPUs."""
    content = this_machine()
    del content["platform"]
    return {name: Seen(value) for name, value in content.items()}


def local(choose: Choose, site: Site) -> Draft:
    """Draft four nodes on this machine, without GPUs."""
    return {
        "name": Seen("local"),
        "nodes": Seen(4, "as many as this machine carries"),
        "hardware": Seen("cpu"),
    }


def docker(choose: Choose, site: Site) -> Draft:
    """Draft the Docker host of the environment: two containers that share its GPUs, or one if it
    has at most one GPU.

    Raises MissingError if no daemon answers.
    """
    from seatrial.platforms.docker import DockerPlatform
    from seatrial.platforms.docker.daemon import Daemon

    address = site.one_host("Docker needs one address, such as ssh://gpu-1")
    daemon = Daemon(DockerPlatform(kind="docker", host=address))
    name = str(daemon.info().get("Name") or "docker")
    here = {} if daemon.remote_host else this_machine()
    hardware = here.get("hardware", "")
    model = hardware["name"] if isinstance(hardware, dict) else hardware
    gpus = int(here.get("gpus_per_node", 0))
    containers = 2 if gpus != 1 else 1
    draft = {
        "name": Seen(name.partition(".")[0]),
        "nodes": Seen(containers, f"containers; the host has {gpus} GPUs"),
        **hardware_fields(gpus // containers, model),
        **open_fields(1, None, None),
    }
    if daemon.remote_host:
        draft["hardware"] = Seen(
            None, "the GPUs of another machine are not seen from here", is_open=True
        )
    if address:
        draft["platform.host"] = Seen(address)
    if containers == 1:
        draft["platform.network"] = Seen("host")
    return draft


def baremetal(choose: Choose, site: Site) -> Draft:
    """Draft hosts that are up, with the GPUs of the first one.

    Raises InputError without a host, LaunchError if the first does not answer.
    """
    from seatrial.platforms.baremetal import BaremetalPlatform
    from seatrial.text.hostlist import expand

    if not site.hosts:
        raise InputError("--host: bare metal needs its hosts, such as --host gpu-[01-04]")
    try:
        hosts = expand(site.hosts)
    except ValueError as error:
        raise InputError(f"--host: {error}") from error
    models = _gpus_of(hosts[0])
    draft = {
        "name": Seen(hosts[0].partition(".")[0]),
        "nodes": Seen(len(hosts)),
        **hardware_fields(len(models), models[0] if models else ""),
        **open_fields(len(hosts), None, None),
        "platform.hosts": Seen(list(site.hosts), f"the GPUs are those of {hosts[0]}"),
    }
    runtime = BaremetalPlatform.model_fields["runtime"].default
    draft["image"] = Seen(draft["image"].value, "only with platform.runtime", unset=True)
    draft["platform.runtime"] = Seen(runtime, unset=True)
    return draft


def _gpus_of(host: str) -> list[str]:
    """Return the GPU models of a host; those of AMD without nvidia-smi.

    Raises LaunchError, MissingError.
    """
    from seatrial.platforms.baremetal import BaremetalPlatform
    from seatrial.platforms.baremetal.hosts import Hosts
    from seatrial.platforms.openssh import SSH_FAILED

    settings = BaremetalPlatform(kind="baremetal", hosts=(host,))
    hosts = Hosts(settings)
    finished = hosts.run(host, _GPUS, _ANSWER_S)
    if finished.status == SSH_FAILED:
        raise hosts.no_login(host, finished.errors)
    if finished.status in _NOT_FOUND:
        finished = hosts.run(host, ("cat", AMD_MODELS), _ANSWER_S)  # fails where there is none
    elif finished.status:
        problem = f"nvidia-smi ended with status {finished.status}"
        raise LaunchError.of("baremetal-host-failed", host=host, problem=problem)
    lines = (line.strip() for line in finished.output.splitlines()[:_MOST_GPUS])
    return [line for line in lines if line]
