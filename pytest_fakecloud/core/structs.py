"""Values with named fields, whose classes cost little to define."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class Struct:
    """A value with named fields, which are the annotations in the body of its class.

    It is declared, created and compared like a frozen dataclass, and has ``_replace()`` like a named
    tuple. Those two generate and compile the methods of each class, which takes 0.1 ms; this base
    class has the same methods for all of its classes. Creating a value takes 1 us longer, so values
    of which a request makes many are named tuples. Nothing prevents a change of a field except the
    type checker.
    """

    _fields: ClassVar[Mapping[str, Any]] = {}
    """The annotations by the names of the fields, those of the base class first."""
    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = cls.__annotations__
        cls._fields = {**cls._fields, **own}
        given = {name: value for name, value in vars(cls).items() if name in own}
        cls._defaults = {**cls._defaults, **given}

    def __init__(self, *values: Any, **named: Any) -> None:
        fields, of = vars(self), type(self).__name__
        fields.update(self._defaults)
        fields.update(zip(self._fields, values, strict=False), **named)
        if fields.keys() != self._fields.keys():
            wrong = ", ".join(fields.keys() ^ self._fields.keys())
            raise TypeError(f"{of}: missing or unknown fields: {wrong}")
        if len(values) > len(self._fields):
            raise TypeError(f"{of} takes {len(self._fields)} values, not {len(values)}")

    def _replace(self, **changed: Any) -> Self:
        """Return a copy with other values of some fields."""
        return type(self)(**{**vars(self), **changed})

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((*map(vars(self).get, self._fields),))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({fields})"
