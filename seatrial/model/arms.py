"""Arms of the check `collectives`: the same sweep with other links, or with small messages alone. Pure.

One definition of what NCCL is told, for the sweeps of a run, for the script that people submit to Slurm, and for logs.
"""

from collections.abc import Mapping

from seatrial.model.measurement import Measurement

INTRA, NETWORK, LATENCY = "intra", "network", "latency"
ARMS = (INTRA, NETWORK, LATENCY)

# Variables of NCCL, by arm. Ring loads every link alike, and a tree would exceed what the network carries.
ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    INTRA: {"NCCL_P2P_LEVEL": "NVL", "NCCL_SHM_DISABLE": "1"},
    NETWORK: {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_ALGO": "Ring"},
    LATENCY: {},
}


def arm_of(measurement: Measurement) -> str:
    """The arm that the measurement is of; empty for NCCL as it is by itself."""
    return str(measurement.conditions.get("arm", ""))


def arm_of_settings(settings: Mapping[str, str]) -> str:
    """The arm whose variables are set, by their full names: the network alone, where it is; else empty."""
    network = ENVIRONMENT[NETWORK].items()
    return NETWORK if all(settings.get(name, "").lower() == value.lower() for name, value in network) else ""
