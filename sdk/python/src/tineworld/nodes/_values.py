"""The values of nodes as results of tools, from which `server.value_of` makes the same values."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from typing import Any

from . import _versions

# In `_meta` of a result: whether the value is in {"result": ...}, since it is no object.
WRAPPED = "tineworld/wrapped"

_jsonschema: Any = importlib.import_module("jsonschema")


class Unfit(TypeError):
    """A value that can't be the result of a tool."""


def as_result(name: str, value: Any, metadata: Any) -> Any:
    """The result of a tool whose function returned a value. What the package mcp made of the function's
    annotation is in `metadata`: values that are no JSON are converted as that says, such as models."""
    if _is_content(value):
        return metadata.convert_result(value)
    schema = metadata.output_schema
    wrong, ever = _fault(value)
    if wrong and (ever or schema is None):
        raise Unfit(f'node "{name}" returned {wrong}; return str, int, float, bool, None, and lists and dicts of them')
    if wrong:
        structured = _converted(name, value, metadata)
    else:
        plain = json.loads(json.dumps(value))
        wrap = metadata.wrap_output if schema is not None else not isinstance(plain, dict)
        structured = {"result": plain} if wrap else plain
    if schema is not None:
        try:
            _jsonschema.validate(structured, schema)
        except _jsonschema.ValidationError as error:
            raise Unfit(f'node "{name}" returned a {type(value).__name__} that is not as its annotation says: {error.message}') from None
    wrapped = not isinstance(value, Mapping) if schema is None else bool(metadata.wrap_output)
    told = structured["result"] if wrapped else structured
    text = told if isinstance(told, str) else json.dumps(told, indent=2, ensure_ascii=False)
    content = [{"type": "text", "text": text}]
    return _versions.types.CallToolResult.model_validate({"content": content, "structuredContent": structured, "_meta": {WRAPPED: wrapped}})


def _converted(name: str, value: Any, metadata: Any) -> Any:
    try:
        done = metadata.convert_result(value)
    except ValueError as error:
        raise Unfit(f'node "{name}" returned a {type(value).__name__} that is not as its annotation says: {error}') from error
    structured = done.structured_content if _versions.TWO else done[1]
    if wrong := _fault(structured)[0]:
        raise Unfit(f'node "{name}" returned a {type(value).__name__} with {wrong}')
    return structured


def _is_content(value: Any) -> bool:
    """Whether it is what the package mcp has for results: pictures, resources, or a whole result."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, _versions.CONTENT) for item in value)
    return isinstance(value, (*_versions.CONTENT, _versions.types.CallToolResult))


def _fault(value: Any, at: str = "") -> tuple[str, bool]:
    """What in a value is not JSON, and whether no annotation helps; an empty text where all of it is."""
    place = f" at {at}" if at else ""
    try:
        match value:
            case None | bool() | int():
                return "", False
            case str():
                value.encode()
                return "", False
            case float():
                return ("", False) if math.isfinite(value) else (f"a float that JSON does not have, {value}{place}", True)
            case list() | tuple():
                found = (_fault(item, f"{at}[{i}]") for i, item in enumerate(value))
            case dict():
                for key in value:
                    if not isinstance(key, str):
                        return f"a dict with a key of type {type(key).__name__}{place}, which is not JSON", True
                found = (_fault(item, f"{at}[{key!r}]") for key, item in value.items())
            case _:
                return f"a value of type {type(value).__name__}{place}, which is not JSON", isinstance(value, (bytes, bytearray, memoryview))
        return next((one for one in found if one[0]), ("", False))
    except UnicodeEncodeError:
        return f"a str that is not Unicode{place}", True
    except RecursionError:
        return "a value that is nested too deep, or holds itself", True
