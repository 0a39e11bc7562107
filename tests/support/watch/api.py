"""What test_api and other tests share."""

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"


OPENAPI: dict[str, Any] = json.loads((DOCS / "openapi.json").read_text())


COMMON = {"400", "401", "403", "408", "413", "415", "431", "500", "501", "503"}


def fault_of(schema: dict[str, Any], value: Any, where: str = "it") -> str:
    """Why a value is not as OPENAPI describes it; "" if it is."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return fault_of(OPENAPI["components"]["schemas"][name], value, where)
    if "oneOf" in schema:
        faults = [fault_of(one, value, where) for one in schema["oneOf"]]
        return "" if faults.count("") == 1 else f"{where}: none or several: {faults}"
    types = schema.get("type", [])
    if types and not any(_is(value, t) for t in ([types] if isinstance(types, str) else types)):
        return f"{where}: {value!r} is no {types}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, list):
        faults = [fault_of(schema["items"], one, f"{where}[]") for one in value]
        return next(filter(None, faults), "")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if missing := [key for key in schema.get("required", []) if key not in value]:
            return f"{where}: {missing} missing"
        if schema.get("additionalProperties") is False and value.keys() - known.keys():
            return f"{where}: {value.keys() - known.keys()} not described"
        faults = [fault_of(known[k], v, f"{where}.{k}") for k, v in value.items() if k in known]
        return next(filter(None, faults), "")
    return ""


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}
    return isinstance(value, kinds[kind])


def described(method: str, route: str, status: int) -> dict[str, Any]:
    found: dict[str, Any] = OPENAPI["paths"][route][method.lower()]["responses"][str(status)]
    if "$ref" in found:
        found = OPENAPI["components"]["responses"][found["$ref"].rpartition("/")[2]]
    return found
