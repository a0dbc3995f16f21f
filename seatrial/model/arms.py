"""Arms of the check `collectives`: the same sweep with other links, or with small messages alone. Pure.

The one definition of NCCL's variables, for the sweeps of a run, the script that is submitted to Slurm, and logs.
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
    """The arm of the measurement; empty for NCCL with its defaults."""
    return str(measurement.conditions.get("arm", ""))


def arm_of_settings(settings: Mapping[str, str]) -> str:
    """`network` if the variables of that arm are set, by their full names; else empty."""
    network = ENVIRONMENT[NETWORK].items()
    return NETWORK if all(settings.get(name, "").lower() == value.lower() for name, value in network) else ""
