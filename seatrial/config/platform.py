"""The base of the platforms' settings, and the type of the field `platform` of a cluster file.

A platform is one package: `config` has its settings model, `platform` has `platform(cluster)`, which returns what
fulfils `seatrial.platforms.Platform`.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, SerializerFunctionWrapHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from seatrial.config import PLATFORMS
from seatrial.config.yamlfile import Strict

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster


Seconds = Annotated[float, Field(gt=0, le=7 * 86400)]


class PlatformSettings(Strict):
    """The platform's section of a cluster file, and properties that the rest of seatrial uses."""

    kind: str
    pulls_images: ClassVar[bool] = False  # nodes take their image from a registry, so what is built needs a repository
    uses_host_software: ClassVar[bool] = False  # nodes run the software of this machine, not that of an image
    takes_image_files: ClassVar[bool] = False  # nodes may start an image that is a file
    injects_faults: ClassVar[bool] = False
    isolates: ClassVar[bool] = False  # its scheduler can take nodes out of service

    def architecture(self, hardware: str, here: str) -> str | None:
        """Return the nodes' architecture (amd64, arm64) if the platform decides it; `here` is this machine's."""
        return None

    def secret_variables(self) -> tuple[str, ...]:
        """Return the environment variables of the nodes whose values are secret."""
        return ()

    def problems(self, cluster: "Cluster") -> Iterator[str]:
        """Yield conflicts with the rest of the cluster file; each begins with the field to change."""
        if self.pulls_images and cluster.builds_without_repository:
            yield f"image: needs a repository, from which the nodes of platform {self.kind} pull it"
        if cluster.image_is_a_file and not self.takes_image_files:
            takers = "slurm and baremetal"
            yield f"image: a file is only for platforms {takers}; {self.kind} takes a reference such as repo/name:tag"
        if cluster.faults and not self.injects_faults:
            yield "faults: are only for platform local; no real cluster is broken on purpose"
        if cluster.isolate and not self.isolates:
            yield f"isolate: is only for platforms kubernetes and slurm, not {self.kind}"

    def moving_parts(self) -> list[str]:
        """Versions and names of the provider's that a run uses and the cluster file may change, for `doctor`."""
        return []

    @classmethod
    def implementation(cls) -> str:
        """Return the module beside the model that brings nodes up."""
        return f"{cls.__module__.rpartition('.')[0]}.platform"


class SettingsByKind(Mapping[str, type[PlatformSettings]]):
    """Annotation of a field that takes the settings of any platform; only the model of the kind given is imported."""

    def __getitem__(self, kind: str) -> type[PlatformSettings]:
        return PLATFORMS[kind]()

    def __iter__(self) -> Iterator[str]:
        return iter(PLATFORMS)

    def __len__(self) -> int:
        return len(PLATFORMS)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices: dict[Any, CoreSchema] = {
            kind: core_schema.no_info_plain_validator_function(partial(_read, kind)) for kind in self
        }
        return core_schema.tagged_union_schema(
            choices,
            "kind",
            serialization=core_schema.wrap_serializer_function_ser_schema(
                _written,
                schema=core_schema.any_schema(),  # as the value's own model says
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        models: Any = Union[tuple(self.values())]  # noqa: UP007
        return handler(TypeAdapter(Annotated[models, Field(discriminator="kind")]).core_schema)


def _written(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return write(value)


def _read(kind: str, value: Any) -> PlatformSettings:
    return PLATFORMS[kind]().model_validate(value)
