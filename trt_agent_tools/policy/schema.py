"""The JSON Schema of policy files, from which editors complete and check them."""

from pydantic import JsonValue
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from trt_agent_tools.policy.policy import PolicyFile

SCHEMA_FILE = "policy.schema.json"
"""Its name beside the shipped policies."""


class _FileSchema(GenerateJsonSchema):
    """A file says nothing of what it leaves out: TOML has no null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        default = described.get("default")
        if default is None or isinstance(default, dict) or default == "":
            described.pop("default", None)
        return described


def policy_schema() -> dict[str, JsonValue]:
    """Return the schema (JSON Schema 2020-12) of a policy file.

    It takes what `load_policy` takes, but for what only a parser judges: text with a duration out of
    range, a ceiling below its limit, a phase pattern with an unclosed bracket.
    """
    described = PolicyFile.model_json_schema(schema_generator=_FileSchema)
    title = "A policy of trt-agent-tools"
    return {"$schema": GenerateJsonSchema.schema_dialect, **described, "title": title}
