"""What the flows take, with bounds: Prefect's run form is made of these and of the flows' docstrings."""

from typing import Annotated, Literal

from pydantic import Field

ClusterFile = Annotated[str, Field(min_length=1, examples=["deployments/clusters/a4-gke.yaml"])]
SuiteName = Annotated[
    Annotated[Literal["quick", "nightly", "acceptance", "a4-sweep"], Field(title="shipped")]
    | Annotated[str, Field(title="file", min_length=1)],
    Field(),
]
WaitSeconds = Annotated[float, Field(ge=0, le=86_400)]
