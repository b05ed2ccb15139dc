"""Schemas lose their padding and nothing that they say."""

import copy
import json
from enum import Enum
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from trt_agent_tools.mcp_server.schemas import always_there, compact, outline
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.snapshot import BuildList, BuildLog, Snapshot

INPUTS = [BuildOptions, StartRequest, SessionRequest]
OUTPUTS = [Snapshot, BuildList, BuildLog]


class Colour(str, Enum):
    """A colour."""

    RED = "red"


class Inner(BaseModel):
    title: str
    properties: int | None = None


class Arguments(BaseModel):
    title: Annotated[str, Field(description="A field that has this name.")]
    limit: int = 20
    label: str | None = None
    colour: Colour = Colour.RED
    either: int | str | None = None
    needed_or_null: int | None
    inner: Inner | None = None
    names: list[str] = Field(default_factory=list)


def keys_of(node: Any) -> set[str]:  # noqa: ANN401  (a JSON Schema has no narrower type)
    if isinstance(node, list):
        return set().union(*map(keys_of, node))
    if isinstance(node, dict):
        return set(node).union(*map(keys_of, node.values()))
    return set()


@pytest.fixture
def compacted() -> dict[str, Any]:
    return compact(Arguments.model_json_schema())


def test_generated_titles_go_and_a_field_of_that_name_stays(compacted: dict[str, Any]) -> None:
    assert "title" not in compacted
    assert compacted["properties"]["title"] == {
        "type": "string",
        "description": "A field that has this name.",
    }
    assert set(compacted["properties"]["inner"]["properties"]) == {"title", "properties"}


def test_an_optional_argument_has_its_plain_type(compacted: dict[str, Any]) -> None:
    properties = compacted["properties"]
    assert properties["label"] == {"type": "string"}
    assert properties["either"] == {"type": ["integer", "string"]}


def test_a_definition_stands_where_it_is_used(compacted: dict[str, Any]) -> None:
    assert not {"$ref", "$defs"} & keys_of(compacted)
    assert compacted["properties"]["inner"]["properties"]["properties"] == {"type": "integer"}
    assert compacted["properties"]["colour"]["enum"] == ["red"]


def test_bounds_of_size_are_left_to_the_refusal(compacted: dict[str, Any]) -> None:
    assert compacted["properties"]["limit"]["type"] == "integer"
    small = compact(BuildOptions.model_json_schema())
    assert not {"maxLength", "minLength", "maxItems", "propertyNames"} & keys_of(small)
    assert small["properties"]["max_num_tactics"]["minimum"] == -1


@pytest.mark.parametrize("model", INPUTS, ids=lambda model: model.__name__)
def test_a_compacted_schema_is_a_valid_one(model: type[BaseModel]) -> None:
    Draft202012Validator.check_schema(compact(model.model_json_schema()))


def test_null_stays_where_it_has_to_be_said(compacted: dict[str, Any]) -> None:
    nullable = compacted["properties"]["needed_or_null"]
    assert "null" in nullable["type"]
    assert "needed_or_null" in compacted["required"]


def test_defaults_that_tell_something_stay(compacted: dict[str, Any]) -> None:
    properties = compacted["properties"]
    assert properties["limit"]["default"] == 20
    assert "default" not in properties["names"]
    assert "default" not in properties["label"]


@pytest.mark.parametrize("model", INPUTS, ids=lambda model: model.__name__)
def test_a_compacted_schema_names_the_same_properties_and_is_smaller(
    model: type[BaseModel],
) -> None:
    full = model.model_json_schema()
    before = copy.deepcopy(full)
    small = compact(full)
    assert full == before
    assert set(small["properties"]) == set(full["properties"])
    assert small.get("required") == full.get("required")
    assert len(json.dumps(small)) < 0.9 * len(json.dumps(full))


@pytest.mark.parametrize("model", OUTPUTS, ids=lambda model: model.__name__)
def test_an_outline_keeps_every_property_and_no_reference(model: type[BaseModel]) -> None:
    full = model.model_json_schema()
    small = outline(full)
    assert set(small["properties"]) == set(full["properties"])
    assert small["required"] == full.get("required", [])
    assert not {"$ref", "$defs", "anyOf"} & keys_of(
        {name: inner for name, inner in small["properties"].items() if isinstance(inner, dict)}
    )


def test_what_is_always_there_leaves_out_what_may_be_absent() -> None:
    full = Snapshot.model_json_schema()
    small = always_there(full)
    assert list(small["properties"]) == small["required"] == full["required"]


def test_an_outline_tells_types() -> None:
    properties = outline(Arguments.model_json_schema())["properties"]
    assert properties["limit"]["type"] == "integer"
    assert properties["inner"]["type"] == "object"
    assert properties["label"]["type"] == "string"
    assert "type" not in properties["either"]


def test_a_definition_without_a_type_is_outlined_without_one() -> None:
    schema = {
        "properties": {"value": {"$ref": "#/$defs/Value"}},
        "$defs": {"Value": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
    }
    assert outline(schema) == {"type": "object", "properties": {"value": {}}, "required": []}
