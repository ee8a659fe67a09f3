"""Compares two replies, and explains known differences between real services and the fakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any

from ..core.wording import brief
from .catalogue import Step
from .exchange import Reply

MINUTE = 60
FLOAT_TOLERANCE = 1e-4
"""Maximum difference of two numbers, one of them a float: processors round scores differently."""

_ID = re.compile(r"\b(msg|scd|dlq|sig|flr)_[A-Za-z0-9]+|\b\d{13}-\d+\b")


def difference(step: Step, real: Reply, fake: Reply) -> str | None:
    """Return a short description of the first difference between two replies, or None."""
    if real.status != fake.status:
        return f"status {real.status}, the fake {fake.status}"
    if real.kind != fake.kind and "json" in real.kind + fake.kind:
        return f"content type {real.kind or 'none'}, the fake {fake.kind or 'none'}"
    rule = _RULES.get(step.compare)
    left, right = real.body, fake.body
    if rule is not None and _has_result(left) and _has_result(right):
        left, right = ({**body, "result": rule(body["result"])} for body in (left, right))
    return next(_differences(_without_ids(left), _without_ids(right), step, ""), None)


def _has_result(body: Any) -> bool:
    return isinstance(body, dict) and "result" in body


def _differences(real: Any, fake: Any, step: Step, path: str) -> Iterator[str]:
    """Yield the path of each difference with both values."""
    where = path or "the body"
    are_lists = isinstance(real, list) and isinstance(fake, list)
    if isinstance(real, dict) and isinstance(fake, dict):
        for name in dict.fromkeys([*real, *fake]):
            below = f"{path}.{name}" if path else name
            if name not in fake:
                yield f"{below} is missing in the fake"
            elif name not in real:
                yield f"{below} is in the fake only"
            elif name in step.loose:
                yield from _other_type(real[name], fake[name], below)
            else:
                yield from _differences(real[name], fake[name], step, below)
    elif are_lists and step.compare == "shape":
        if bool(real) != bool(fake):
            yield f"{where}: one is empty"
    elif are_lists and len(real) != len(fake):
        yield f"{where} has {len(real)} members, the fake's {len(fake)}"
    elif are_lists:
        for number, (left, right) in enumerate(zip(real, fake, strict=True)):
            yield from _differences(left, right, step, f"{path}[{number}]")
    elif step.compare == "shape":
        yield from _other_type(real, fake, where)
    elif not _agree(real, fake, step):
        yield f"{where}: {brief(real)}, the fake {brief(fake)}"


def _agree(real: Any, fake: Any, step: Step) -> bool:
    if _is_number(real) and _is_number(fake):
        if step.compare == "near":
            # No scenario sets a TTL of more than 10,000 seconds, so a larger number is milliseconds.
            return _are_near(real, fake, MINUTE * 1000 if max(real, fake) > 10_000 else MINUTE)
        if float in (type(real), type(fake)):
            return _are_near(real, fake, FLOAT_TOLERANCE)
    return bool(real == fake) and type(real) is type(fake)


def _are_near(real: float, fake: float, tolerance: float) -> bool:
    try:
        return abs(real - fake) <= tolerance
    except OverflowError:  # an integer that does not fit into a float
        return False


def _other_type(real: Any, fake: Any, where: str) -> Iterator[str]:
    if type(real) is not type(fake) and not (_is_number(real) and _is_number(fake)):
        yield f"{where} is {_KINDS[type(real)]}, the fake's {_KINDS[type(fake)]}"


_KINDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    NoneType: "null",
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _without_ids(value: Any) -> Any:
    if isinstance(value, str):
        return _ID.sub(lambda found: f"<{found[1] or 'entry'} id>", value)
    if isinstance(value, list):
        return [_without_ids(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_ids(item) for name, item in value.items()}
    return value


def _sorted(value: Any, width: int = 1) -> Any:
    if not isinstance(value, list) or len(value) % width:
        return value
    groups = [value[at : at + width] for at in range(0, len(value), width)]
    return sorted(groups, key=repr)


def _page(width: int) -> Callable[[Any], Any]:
    def apply(value: Any) -> Any:
        is_page = isinstance(value, list) and len(value) == 2
        return [value[0], _sorted(value[1], width)] if is_page else value

    return apply


def _idle(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [
        [*entry[:2], "<idle>", entry[3]] if isinstance(entry, list) and len(entry) == 4 else entry
        for entry in value
    ]


# The other ways of ``COMPARISONS`` compare values differently and do not rearrange them.
_RULES: Mapping[str, Callable[[Any], Any]] = {
    "sorted": _sorted,
    "pairs": lambda value: _sorted(value, 2),
    "scan": _page(1),
    "scan-pairs": _page(2),
    "idle": _idle,
}


# -- known differences -----------------------------------------------------------------------------

_SCRIPT_HINT = re.compile(r"[0-9a-f]{40}, | Please use EVAL\.")


def _differs_only_in_script_hint(step: Step, real: Reply, fake: Reply) -> bool:
    left, right = (_SCRIPT_HINT.sub("", str(reply)) for reply in (real, fake))
    return step.subject.startswith("EVAL") and left == right


def _has_newer_option(step: Step, real: Reply, fake: Reply) -> bool:
    """Return whether a server of another version rejected an option that it does not support."""
    return "IFEQ" in str(step).upper().split() and "syntax error" in str(real)


OLDER = "the server does not have the option IFEQ yet"
KNOWN: Mapping[str, Callable[[Step, Reply, Reply], bool]] = {
    "newer servers omit the script's hash and the advice to use EVAL from error texts": (
        _differs_only_in_script_hint
    ),
    OLDER: _has_newer_option,
}
"""The reasons of known differences, and functions that return whether a reason applies."""


def reason_for(step: Step, real: Reply, fake: Reply) -> str | None:
    """Return the reason for a known difference, or None for any other difference."""
    return next((reason for reason, applies in KNOWN.items() if applies(step, real, fake)), None)
