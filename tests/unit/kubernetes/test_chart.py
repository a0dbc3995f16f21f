"""What the Helm chart says of machines, names and paths is what seatrial says; tests/e2e/kubernetes
renders it.
"""

import json
import re
from typing import Any, get_args

import pytest

from seatrial.platforms.kubernetes.config import KubernetesPlatform, Toleration
from tests.unit.kubernetes.chart import CHART, FACTS, MACHINES, facts

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def test_facts_file_of_the_chart_is_up_to_date() -> None:
    assert FACTS.read_text() == facts(), "if this is meant: python -m tests.unit.kubernetes.chart"


def test_chart_schema_allows_the_same_values_as_the_cluster_file() -> None:
    legal = SCHEMA["properties"]
    assert set(legal["machine"]["enum"]) == set(MACHINES)
    assert set(legal["launcher"]["enum"]) <= set(
        get_args(KubernetesPlatform.model_fields["launcher"].annotation)
    )
    deadline = KubernetesPlatform.model_json_schema()["properties"]["deadline_s"]
    assert legal["deadlineSeconds"]["minimum"] == deadline["minimum"]
    assert legal["deadlineSeconds"]["maximum"] == deadline["maximum"]
    assert set(legal["tolerations"]["items"]["properties"]) == set(Toleration.model_fields)


@pytest.mark.parametrize(
    "word", ["now", "randAlphaNum", "uuidv4", "genPrivateKey", "lookup", "default.svc"]
)
def test_templates_use_no_function_that_varies_between_renders(word: str) -> None:
    templates = list((CHART / "templates").iterdir())
    assert templates
    assert not [
        file.name for file in templates if re.search(rf"\b{re.escape(word)}\b", file.read_text())
    ]


def _objects(schema: Any) -> list[dict[str, Any]]:
    """Every part of a schema that describes an object."""
    if isinstance(schema, list):
        return [nested for part in schema for nested in _objects(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [nested for part in schema.values() for nested in _objects(part)]


def test_every_object_of_the_chart_schema_refuses_unknown_values() -> None:
    # The only object without fields is `global`, Helm's own
    objects = [each for each in _objects(SCHEMA) if each != {"type": "object"}]
    assert len(objects) > 10
    assert all("additionalProperties" in each for each in objects)
