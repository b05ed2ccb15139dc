"""JSON Schemas as small as they can be without saying less: every model that reads them pays for them."""

from typing import Any

_SIZES = {
    *("minLength", "maxLength", "pattern"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "propertyNames"),
}
"""Bounds that no honest argument meets. The server holds them and says which one was passed."""


def compact(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` with what a writer of arguments needs, in one piece.

    Generated titles and bounds of size go, "X or null" is X where null is the default, and definitions
    stand where they are used, as not every client follows references; so none may contain itself.
    """
    known = schema.get("$defs", {})
    result: dict[str, Any] = _compact({k: v for k, v in schema.items() if k != "$defs"}, known)
    return result


def outline(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` with its top-level properties and their types alone.

    An output is read, not written: its names say what they are, and their order of nesting is seen.
    """
    known = schema.get("$defs", {})
    properties = {
        name: _outline(inner, known) for name, inner in schema.get("properties", {}).items()
    }
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


def always_there(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the least of `schema`: the names of the properties that no answer lacks."""
    required = schema.get("required", [])
    return {"type": "object", "properties": {name: {} for name in required}, "required": required}


def _outline(node: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    kinds: set[str] = set()
    for choice in node.get("anyOf", [node]):
        reference = choice.get("$ref", "").removeprefix(_REFERENCE)
        kind = (known[reference] if reference else choice).get("type")
        kinds |= {kind} if kind not in {None, "null"} else set()
    return {"type": kinds.pop()} if len(kinds) == 1 else {}


_REFERENCE = "#/$defs/"


def _compact(node: Any, known: dict[str, Any]) -> Any:  # noqa: ANN401  (a JSON Schema has no narrower type)
    if isinstance(node, list):
        return [_compact(item, known) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _compact({**known[node["$ref"].removeprefix(_REFERENCE)], **beside}, known)
    out = {
        # Under "properties" the keys are names, and one of them may be "title".
        key: {name: _compact(inner, known) for name, inner in value.items()}
        if key == "properties"
        else _compact(value, known)
        for key, value in node.items()
        if key not in _SIZES and not (key == "title" and isinstance(value, str))
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
    return _short_choice(out)


def _short_choice(node: dict[str, Any]) -> dict[str, Any]:
    """Return a choice between plain types as a list of types."""
    choices = node.get("anyOf", [])
    if not choices or any(set(choice) != {"type"} for choice in choices):
        return node
    kinds = [choice["type"] for choice in choices]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return {"type": kinds, **rest}
