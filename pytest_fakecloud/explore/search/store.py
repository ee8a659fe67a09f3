"""The schedule with which an earlier search has broken the promise of the same code."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterable
from typing import Any

from ...core.errors import ContractError
from ..subject.clients import functions_of_all
from ..subject.options import Subject
from ..values.disturbances import Kind
from ..values.schedule import UNDISTURBED, Schedule


class Store:
    """Keeps the failing schedule of one piece of code in pytest's cache, from one run of the
    tests to the next.

    ``cache`` is None for a cloud that no fixture has created, with ``seed=``, and without pytest's
    plugin ``cacheprovider``: then nothing is kept.
    """

    def __init__(self, cache: Any, key: str) -> None:
        self._cache = cache
        self._key = key

    @classmethod
    def of(cls, subject: Subject, cache: Any) -> Store:
        """Return the store of a search's code, promises, kinds, fakes and inputs, not other options."""
        functions = [*functions_of_all(subject.programs), *subject.promises.checks]
        inputs = repr(subject.inputs) if subject.inputs else ""
        return cls(cache, key_of(functions, subject.kinds, subject.disturbable_fakes, inputs))

    def load(self) -> Schedule:
        """Return the stored schedule; one without disturbances if there is none that can be read."""
        text = "" if self._cache is None else self._cache.get(self._key, "")
        try:
            return Schedule.parse(text)
        except ContractError:
            return UNDISTURBED  # Another version of the package wrote it, or somebody else.

    def save(self, schedule: Schedule) -> None:
        """Store a schedule; one without disturbances removes what is stored."""
        if self._cache is not None:
            self._cache.set(self._key, str(schedule))


def key_of(
    functions: Iterable[Callable[..., object]],
    kinds: Iterable[Kind],
    fakes: Iterable[str],
    inputs: str,
) -> str:
    """Return the key under which the failure of this code with these options is stored."""
    parts = [*sorted(kinds), *sorted(fakes), inputs]
    for function in functions:
        inner = getattr(function, "func", function)
        code = getattr(inner, "__code__", None)
        name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
        parts += [name, "" if code is None else _text_of(code)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"pytest_fakecloud/explore/{digest}"


def _text_of(value: object) -> str:
    """Return code, or one of its constants, as text that is the same in every process."""
    if isinstance(value, types.CodeType):
        return " ".join([value.co_code.hex(), *value.co_names, *map(_text_of, value.co_consts)])
    if isinstance(value, frozenset):
        return f"{{{' '.join(sorted(map(_text_of, value)))}}}"
    if isinstance(value, tuple):
        return f"({' '.join(map(_text_of, value))})"
    return repr(value)
