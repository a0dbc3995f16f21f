"""Cluster files that are refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.config.cluster import load_cluster
from seatrial.model.errors import InputError
from seatrial.platforms import platform_for


def refusal(folder: Path, **fields: Any) -> str:
    """The one line that names the file and refuses these fields."""
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump({"nodes": 2, **fields}))
    with pytest.raises(InputError) as refused:
        platform_for(load_cluster(file), file)
    line = str(refused.value)
    assert line.startswith(f"{file}: ")
    assert "\n" not in line
    return line
