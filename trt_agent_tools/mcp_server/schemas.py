"""JSON Schemas as small as they can be without saying less: every model that reads them pays for them."""

from typing import Any

_DROPPED = {"title"}


def compact(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` without generated titles, and with "X or null" as X where null is the default."""
    result: dict[str, Any] = _compact(schema)
    return result


def outline(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` with its top-level properties alone: what is inside them is given by their type.

    An output is read, not written: its names say what they are, and their order of nesting is seen.
    """
    known = schema.get("$defs", {})
    properties = {
        name: _outline(inner, known) for name, inner in schema.get("properties", {}).items()
    }
    required = schema.get("required", [])
    return {"type": "object", "properties": properties, "required": required}


def _outline(node: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    kinds: set[str] = set()
    for choice in node.get("anyOf", [node]):
        reference = choice.get("$ref", "").removeprefix("#/$defs/")
        kind = (known[reference] if reference else choice).get("type")
        kinds |= {kind} if kind not in {None, "null"} else set()
    out: dict[str, Any] = {"type": kinds.pop()} if len(kinds) == 1 else {}
    if "description" in node:
        out["description"] = node["description"]
    return out


def _compact(node: Any) -> Any:  # noqa: ANN401  (a JSON Schema has no narrower type)
    if isinstance(node, list):
        return [_compact(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {
        # Under "properties" the keys are names, and one of them may be "title".
        key: {name: _compact(inner) for name, inner in value.items()}
        if key in {"properties", "$defs"}
        else _compact(value)
        for key, value in node.items()
        if not (key in _DROPPED and isinstance(value, str))
    }
    choices = out.get("anyOf")
    if isinstance(choices, list) and "default" in out and out["default"] is None:
        real = [choice for choice in choices if choice != {"type": "null"}]
        del out["default"]
        if len(real) == 1:
            del out["anyOf"]
            out = {**real[0], **out}
        else:
            out["anyOf"] = real
    if out.get("default") in ([], {}, ""):
        del out["default"]
    return out
