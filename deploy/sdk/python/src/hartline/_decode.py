"""Dataclasses from the JSON of answers.

Unknown fields are ignored, because a later daemon may send more of them. A missing field is
``None`` or has its default value, if it has one. Other missing fields and wrong types are errors: a
value that has the wrong type would fail later, elsewhere.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from .errors import ProtocolError

T = TypeVar("T")


def decode(kind: type[T], value: object, where: str) -> T:
    """Return a value of a type.

    Args:
        kind: A dataclass, whose fields may be dataclasses, ``str``, ``int``, ``float``, ``bool``,
            sequences and mappings of these, or ``None``.
        value: A value of :func:`json.loads`.
        where: The place of the value in the answer, for errors.

    Raises:
        ProtocolError: The value has another type, or a field is missing.

    """
    return cast("T", _decode(kind, value, where))


def _decode(kind: Any, value: object, where: str) -> object:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_optional(kind, value, where)
    if origin in (tuple, Sequence):
        entries = _expect(list, value, where)
        return tuple(_decode(get_args(kind)[0], entry, f"{where}[]") for entry in entries)
    if origin is Mapping:
        pairs = _expect(dict, value, where)
        return {name: _decode(get_args(kind)[1], pairs[name], where) for name in pairs}
    if is_dataclass(kind):
        return _decode_dataclass(kind, _expect(dict, value, where), where)
    if kind is float and type(value) is int:
        return float(value)
    return _expect(kind, value, where)


def _decode_optional(kind: Any, value: object, where: str) -> object:
    if value is None:
        return None
    (inner,) = (part for part in get_args(kind) if part is not types.NoneType)
    return _decode(inner, value, where)


def _decode_dataclass(kind: Any, value: Mapping[str, object], where: str) -> object:
    custom = getattr(kind, "from_json", None)
    if custom is not None:
        return custom(value, where)
    hints = _hints(kind)
    found = {}
    for field in fields(kind):
        place = f"{where}.{field.name}"
        if field.name in value:
            found[field.name] = _decode(hints[field.name], value[field.name], place)
        elif types.NoneType in get_args(hints[field.name]):
            found[field.name] = None
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ProtocolError(f"the daemon's answer has no {place}")
    return kind(**found)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _expect(kind: type[T], value: object, where: str) -> T:
    # bool is a subclass of int, but no number of the API.
    if type(value) is not kind:
        found = type(value).__name__
        raise ProtocolError(f"the daemon's answer: {where} is {found}, not {kind.__name__}")
    return value
