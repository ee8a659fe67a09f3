"""Formats the arguments of a method of a fake for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import brief, cut, shown


def arguments_shown(positional: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    return [
        *(shown(value, _argument) for value in positional),
        *(
            f"{name}={shown(value, _names_of if name == 'headers' else _argument)}"
            for name, value in named.items()
        ),
    ]


def _names_of(headers: Any) -> str:
    """Format headers without their values, which may be secrets."""
    return _argument([*headers] if headers else headers)


_SHOWN = 60
"""Maximum number of characters of a number or a text in an argument."""
_BRACKETS: Mapping[type, tuple[str, str]] = {
    dict: ("{", "}"), list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}")
}  # fmt: skip


def _argument(value: Any, levels: int = 3) -> str:
    """Format an argument in a few characters, in a time that does not depend on its size. Containers
    are shown down to a number of levels. Other threads may change them meanwhile.
    """
    if isinstance(value, str | bytes):
        return cut(repr(value[: _SHOWN + 1]), _SHOWN)
    if value is None or isinstance(value, int | float):
        return brief(value, _SHOWN)
    kind: type = type(value)
    bases = [kind] if kind in _BRACKETS else [b for b in _BRACKETS if issubclass(kind, b)]
    if not bases:
        return kind.__name__
    base = bases[0]
    if not value:
        return repr(base())
    if len(value) > 10 or not levels:
        return f"{kind.__name__} of {len(value)}"
    if base is dict:
        parts = [
            f"{_argument(k, levels - 1)}: {_argument(v, levels - 1)}"
            for k, v in list(value.items())
        ]
    else:
        parts = [_argument(item, levels - 1) for item in list(value)]
    opening, closing = _BRACKETS[base]
    if kind is tuple and len(parts) == 1:
        closing = ",)"
    name = "" if kind is base else kind.__name__
    return cut(f"{name}{opening}{', '.join(parts)}{closing}")
