"""Finds the functions of the application that code of a test can reach by the names in it.

Nothing here runs code of the application: an attribute may be a property, an object may be lazy.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Mapping
from inspect import getattr_static
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from ..core.libraries import is_library
from .inspection import home

_MOST = 2000
"""Maximum number of functions, classes, modules and other objects to look at."""
_CALLED_BY_RUNNERS = {
    f"{step}{suffix}"
    for step in ("setup", "teardown")
    for suffix in ("_module", "_function", "_class", "_method")
} | {"setUp", "tearDown", "setUpClass", "tearDownClass", "asyncSetUp", "asyncTearDown"}
"""Members that pytest and unittest call for a test without a name in its code."""


class FunctionPlace(NamedTuple):
    """The file in which a function is defined, the line of its first decorator or else of its ``def``,
    and its name.
    """

    file: str
    line: int
    name: str


def reachable(objects: Iterable[object], codes: Iterable[CodeType] = ()) -> set[FunctionPlace]:
    """Return the functions of the application that functions or ``codes`` can reach, and themselves.

    A function reaches the objects that its global names and its closure refer to, and the functions
    inside it. Reached modules and classes, also those of reached objects, add their members that
    reached code names, even if it names those of another object.
    """
    search = _Search()
    search.waiting += objects
    # Code on a stack has lost its function, and so its global names.
    scopes: dict[str, Mapping[str, object]] = {
        file: vars(module)
        for module in tuple(sys.modules.values())
        if type(file := getattr_static(module, "__file__", None)) is str
        and issubclass(type(module), ModuleType)
    }
    for code in codes:
        if code.co_name != "<module>":  # It contains the functions that it only defines.
            search.add_code(code, scopes.get(code.co_filename, {}))
    search.run()
    return search.places


class _Search:
    def __init__(self) -> None:
        self.waiting: list[object] = []
        self.places: set[FunctionPlace] = set()
        self._seen: dict[int, object] = {}
        self._scopes: list[Mapping[str, object]] = []
        """The members of the application's modules and classes that were reached."""
        self._names = set(_CALLED_BY_RUNNERS)
        """The names of members in reached code."""

    def run(self) -> None:
        while self.waiting and len(self._seen) < _MOST:
            value = self.waiting.pop()
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                self._add(value)
            if not self.waiting:
                self._add_members()

    def _add_members(self) -> None:
        members = [
            member
            for scope in self._scopes
            for name, member in tuple(scope.items())
            if name in self._names or (name.startswith("__") and name.endswith("__"))
        ]
        self.waiting += [member for member in members if id(member) not in self._seen]

    def _add(self, value: Any) -> None:
        kind = type(value)  # `isinstance()` would evaluate lazy objects
        if kind is MethodType:
            self.waiting += [value.__func__, value.__self__]
        elif kind in (staticmethod, classmethod):
            self.waiting.append(value.__func__)
        elif kind is property:
            self.waiting += [value.fget, value.fset]
        elif kind is FunctionType:
            self.add_code(value.__code__, value.__globals__)
            self.waiting += _values_in_closure(value)
            self.waiting += value.__defaults__ or ()
        elif issubclass(kind, ModuleType):
            self._scopes += [vars(value)] if _is_application(value) else []
        elif issubclass(kind, type):
            self._scopes += [vars(base) for base in value.__mro__ if _is_application(base)]
        elif _is_application(kind):
            self.waiting.append(kind)
        # Decorators leave the function there, whatever they make of it.
        self.waiting.append(getattr_static(value, "__wrapped__", None))

    def add_code(self, code: CodeType, names: Mapping[str, object]) -> None:
        if is_library(code.co_filename):
            return
        self.places.add(FunctionPlace(code.co_filename, code.co_firstlineno, code.co_name))
        self.waiting.append(names.get(code.co_qualname.rpartition(".")[0]))  # its class
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                self.waiting.append(names.get(instruction.argval))
            elif instruction.opcode in dis.hasname:
                self._names.add(instruction.argval)
            if instruction.opname == "IMPORT_NAME":
                package = f"{names.get('__package__')}.{instruction.argval}".rstrip(".")
                self.waiting += map(sys.modules.get, (instruction.argval, package))
        for constant in code.co_consts:
            if type(constant) is CodeType:
                self.add_code(constant, names)


def _values_in_closure(function: FunctionType) -> list[object]:
    values = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # The variable has no value yet.
            continue
    return values


def _is_application(module_or_class: object) -> bool:
    module = sys.modules.get(home(module_or_class))
    file = getattr_static(module, "__file__", None)
    return type(file) is str and not is_library(file)
