"""Failing schedules kept in the database of Hypothesis, to be tried first by later runs."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import ContractError
from ..run import Choice, Program


def hypothesis() -> Any:
    """Return the Hypothesis package; raise ``ContractError`` if it is not installed."""
    try:
        import hypothesis
    except ModuleNotFoundError as error:
        raise ContractError(
            "explore() needs Hypothesis: pip install 'pytest-fakecloud[explore]'"
        ) from error
    return hypothesis


def database() -> Any:
    """Return the database of the current Hypothesis profile, or None."""
    return hypothesis().settings().database


def saved(key: bytes) -> list[str]:
    """Return the schedules stored under a key, shortest first."""
    examples = database()
    if examples is None:
        return []
    texts = sorted(examples.fetch(key), key=lambda text: (len(text), text))
    return [text.decode("utf-8", "replace") for text in texts]


def forget(key: bytes, text: str) -> None:
    """Delete a stored schedule."""
    examples = database()
    if examples is not None:
        examples.delete(key, text.encode())


def key_of(
    programs: Sequence[Program], check: Callable[..., object] | None, choice: Choice
) -> bytes:
    """Return the key under which failures of this code with these options are stored."""
    parts = sorted(choice.kinds) + sorted(choice.handles)
    for function in (*(program.function for program in programs), check):
        if function is not None:
            inner = getattr(function, "func", function)
            code = getattr(inner, "__code__", None)
            name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
            parts += [name, "" if code is None else _code_text(code)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"pytest_fakecloud.explore.{digest}".encode()


def _code_text(code: types.CodeType) -> str:
    """Return a function's code as text, without line numbers."""
    return " ".join([code.co_code.hex(), *code.co_names, *map(_constant_text, code.co_consts)])


def _constant_text(constant: object) -> str:
    """Return a constant as text that is the same in every process."""
    if isinstance(constant, types.CodeType):
        return _code_text(constant)
    if isinstance(constant, frozenset):
        return f"{{{' '.join(sorted(map(_constant_text, constant)))}}}"
    if isinstance(constant, tuple):
        return f"({' '.join(map(_constant_text, constant))})"
    return repr(constant)
