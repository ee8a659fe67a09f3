"""Replaces attributes and functions of other code, alongside other tools that replace them.

``replace()`` replaces one attribute of a module, class or object. ``Everywhere`` replaces functions
wherever a module holds them. A ``Hook`` replaces a function of a library once the library has been
imported, while the hook has users.

Whatever ends first, each of them restores exactly what it found. If other code has replaced an
attribute since, its replacement stays. Source: decided here.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from operator import is_not
from types import FunctionType, ModuleType
from typing import Any, Literal, Self, TypeAlias

from ..core.exits import Exits

Function: TypeAlias = Callable[..., Any]
"""A function of other code, or its replacement."""
Patch: TypeAlias = tuple[object, str, object]
"""The owner and the name of an attribute, and the value that replaces it."""
_MISSING: Any = object()
_lock = threading.RLock()
_covered: dict[int, Replacement] = {}
"""Replacements that ended while other code's were in place, by the ID of their value."""


class ShortcutWarning(UserWarning):
    """A warning that a client library has no function of a name that should be replaced."""


# -- one place -------------------------------------------------------------------------------------


class Replacement:
    """An attribute of a module, class or object that is replaced from ``put()`` to ``restore()``."""

    __slots__ = ("_holder", "_is_slot", "_place", "_state", "before", "value")

    def __init__(self, holder: Any, place: Any, value: Any) -> None:
        self._holder = holder
        self._place = place
        self._state: Literal["", "put", "restoring"] = ""
        self._is_slot = hasattr(getattr(type(holder), str(place), None), "__set__")
        self.before: Any = _MISSING
        self.value = value

    def put(self) -> Self:
        with _lock:
            present = self._read()
            if present is _MISSING and not hasattr(self._holder, self._place):
                raise AttributeError(
                    f"{self._holder!r} has no {self._place!r} that could be replaced"
                )
            self.before = original_of(present) if _covered else present
            _covered.pop(id(self.value), None)
            self._state = "put"
            self._write(self.value)
        return self

    def restore(self) -> None:
        """Restore the value before, unless other code has replaced this one. Can be repeated, also after
        an exception at any place in it.
        """
        with _lock:
            if not self._state:
                return
            if self._state == "restoring" or self._read() is self.value:
                self._state = "restoring"
                self._write(original_of(self.before) if _covered else self.before)
            else:
                _covered[id(self.value)] = self
            self._state = ""

    def _read(self) -> Any:
        """Return the value of the holder itself, not an inherited one."""
        if self._is_slot:
            return getattr(self._holder, self._place, _MISSING)
        return self._holder.__dict__.get(self._place, _MISSING)

    def _write(self, value: Any) -> None:
        if value is _MISSING:
            with suppress(AttributeError):  # It has been deleted before an interruption.
                delattr(self._holder, self._place)
        else:
            setattr(self._holder, self._place, value)


class _Item(Replacement):
    """A replaced item of a namespace, dictionary or list."""

    __slots__ = ()

    def _read(self) -> Any:
        try:
            return self._holder[self._place]
        except LookupError:
            return _MISSING

    def _write(self, value: Any) -> None:
        self._holder[self._place] = value


def original_of(value: Any) -> Any:
    """Return what a replacement replaced, if it has ended; return any other value unchanged. Other
    code may keep a replacement, or restore it later.
    """
    while (ended := _covered.get(id(value))) is not None:
        value = ended.before
    return value


def replace(holder: Any, name: str, value: Any) -> Replacement:
    """Replace an attribute of a module, class or object.

    Restoring deletes an attribute that the holder had inherited. Raises ``AttributeError`` if it has
    no such attribute.
    """
    replacement = Replacement(holder, name, value)
    try:
        return replacement.put()
    except BaseException:
        # A signal's handler may have interrupted it, and nothing else would restore it.
        replacement.restore()
        raise


def swap(exits: Exits, holder: Any, name: str, value: Any) -> Replacement:
    """Replace an attribute like ``replace()``, until the exits are closed."""
    replacement = Replacement(holder, name, value)
    exits.callback(replacement.restore)
    return replacement.put()


# -- every place -----------------------------------------------------------------------------------


class Everywhere:
    """Functions that are replaced wherever a module holds them, until ``restore()``.

    Modules hold functions under any name, in dictionaries and lists, and in their own functions
    (default arguments, closures) and classes. ``leaves_out`` is called with the name of a module and
    returns whether the module keeps the originals. ``restore()`` also finds replacements that have
    been stored since, for example by modules imported later.

    Only modules that hold one of the functions, or the module it is from, are searched closely.
    """

    def __init__(self, leaves_out: Callable[[str], bool] = lambda name: False) -> None:
        self._leaves_out = leaves_out
        self._replacements: list[Replacement] = []
        self._pairs: list[tuple[Function, Function]] = []

    def add(self, pairs: Iterable[tuple[Function, Function]]) -> None:
        """Replace functions, given as pairs of the original and its replacement."""
        # A builtin function does not bind to instances as a method, so its replacement must not.
        new = [
            (original, ours if hasattr(type(original), "__get__") else staticmethod(ours))
            for original, ours in pairs
        ]
        self._pairs += new
        self._replacements += _Search(new).replaced(self._leaves_out)

    def restore(self) -> None:
        """Restore the functions. Can be repeated, also after an exception at any place in it."""
        while self._replacements:
            self._replacements[-1].restore()
            self._replacements.pop()
        # Only search if something holds a replacement, besides its pair. The last object shows how
        # many references an object has that only its pair holds.
        pairs = [*self._pairs, (None, object())]
        *references, alone = [sys.getrefcount(ours) for _, ours in pairs]
        back = [(ours, original) for original, ours in self._pairs]
        if any(count > alone for count in references):
            _Search(back).replaced(self._leaves_out)
        self._pairs.clear()


class _Search:
    """Searches the loaded modules for functions, and replaces them."""

    def __init__(self, pairs: Iterable[tuple[Function, Function]]) -> None:
        self._pairs = list(pairs)
        self._by_id = {id(function): replacement for function, replacement in self._pairs}
        self._module = ""
        """The name of the module that is being searched."""
        self._seen: set[int] = set()
        self._found: list[Replacement] = []

    def replaced(self, leaves_out: Callable[[str], bool]) -> list[Replacement]:
        """Replace the functions in all modules, unless they are left out."""
        origins = {function.__module__ for pair in self._pairs for function in pair}
        origins |= {name.partition(".")[0] for name in origins}
        wanted = {id(sys.modules[name]) for name in origins if name in sys.modules}
        wanted.update(self._by_id)
        for name, names in _namespaces(leaves_out):
            if not wanted.isdisjoint(map(id, list(names.values()))):
                self._module = name
                self._in_items(names, list(names.items()), is_module=True)
        return self._found

    def _ours(self, held: Any) -> Any:
        """Return the function to store instead of a value, or the value if it is to be kept."""
        return self._by_id.get(id(original_of(held) if _covered else held), held)

    def _in_items(
        self, items: Any, pairs: Iterable[tuple[Any, Any]], *, is_module: bool = False
    ) -> None:
        """Search a namespace, dictionary or list; what a namespace holds is searched, too."""
        for key, held in pairs:
            if (ours := self._ours(held)) is not held:
                self._found.append(_Item(items, key, ours).put())
            elif is_module:
                self._below(held)

    def _below(self, value: Any) -> None:
        """Search a dictionary or list, and a function or class of this module."""
        # Ask only for its type, because proxies (of Flask) may raise an error for anything else.
        kind = type(value)
        if kind is staticmethod or kind is classmethod:
            value = value.__func__
            kind = type(value)
        if kind is FunctionType:
            holds = value.__defaults__ or value.__kwdefaults__ or value.__closure__
            if holds and value.__module__ == self._module and id(value) not in self._seen:
                self._seen.add(id(value))
                self._in_function(value)
        elif kind is dict:
            # Most dictionaries hold none of the functions, and some are large.
            if _covered or not self._by_id.keys().isdisjoint(map(id, list(value.values()))):
                self._in_items(value, list(value.items()))
        elif kind is list:
            self._in_items(value, enumerate(list(value)))
        elif issubclass(kind, type) and id(value) not in self._seen:
            self._seen.add(id(value))
            names = dict(vars(value))
            if names.get("__module__") == self._module:
                self._in_class(value, names)

    def _in_function(self, function: FunctionType) -> None:
        if defaults := function.__defaults__:
            new_defaults = tuple(map(self._ours, defaults))
            if any(map(is_not, new_defaults, defaults)):
                self._found.append(replace(function, "__defaults__", new_defaults))
        if function.__kwdefaults__:
            self._in_items(function.__kwdefaults__, list(function.__kwdefaults__.items()))
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # an empty cell
                held = cell.cell_contents
                if (ours := self._ours(held)) is not held:
                    self._found.append(replace(cell, "cell_contents", ours))
                else:
                    self._below(held)

    def _in_class(self, owner: type, names: dict[str, Any]) -> None:
        for name, held in names.items():
            function = held.__func__ if type(held) is staticmethod else None
            if (ours := self._ours(held)) is not held:
                self._found.append(replace(owner, name, ours))
            elif function is not None and (ours := self._ours(function)) is not function:
                self._found.append(replace(owner, name, staticmethod(ours)))
            else:
                self._below(held)


def _namespaces(leaves_out: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and not leaves_out(name):
            yield name, vars(module)
    # anyio keeps its event-loop modules, even if a nested pytest run has removed them from
    # ``sys.modules``.
    anyio = sys.modules.get("anyio._core._eventloop")
    for loop in list(getattr(anyio, "loaded_backends", {}).values()):
        names = getattr(loop.sleep, "__globals__", {})
        yield str(names.get("__name__")), names


# -- functions of libraries ------------------------------------------------------------------------


class Change:
    """A change to the process that lasts as long as it has users, such as a hook. A user is any
    object, such as one that stands for an open cloud, or another change that consists of hooks.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.users: dict[int, object] = {}
        """The users, by their IDs."""

    def enter(self, user: object) -> None:
        """Add a user. The first one makes the change. The user leaves, also after an exception."""
        with self._lock:
            is_first = not self.users
            self.users[id(user)] = user
            if is_first:
                self._begin()

    def leave(self, user: object) -> None:
        """Remove a user. The last one undoes the change, unless other code has changed the same. Can be
        repeated, also after an exception at any place in it.
        """
        with self._lock:
            if self.users.keys() == {id(user)}:
                self._end()
            self.users.pop(id(user), None)

    def _begin(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Change what has been imported since ``enter()``, or restored by another tool."""
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError


class Hook(Change):
    """One function of a library, which is replaced while the hook has users.

    ``module`` and ``path`` name the function (``"httpx"``, ``"HTTPTransport.handle_request"``);
    ``wrap`` makes the replacement from the original and the hook, whose ``users`` the
    replacement reads; ``without`` is the part of the warning that says what follows if the library
    has no such function. If another tool's function is in place when the last user leaves, it stays,
    and the hook's replacement, if that tool calls it, calls the original.
    """

    def __init__(
        self, module: str, path: str, wrap: Callable[[Function, Hook], Function], *, without: str
    ) -> None:
        super().__init__()
        self.module = module
        self.path = path
        self.without = without
        self._wrap = wrap
        *self._owners, self._name = path.split(".")
        self.library: Any = None
        """The module in which the function was replaced last."""
        self._last: Replacement | None = None
        self._made: tuple[Function, Function] | None = None
        """The latest original and its replacement, which is used again for the same original."""
        self._warned = False

    def refresh(self) -> None:
        """Replace the function, if the library is imported, not under the name of another one as by
        ``httpx2.alias_httpx()``, and the replacement not in place.
        """
        # Every fake calls this, so check the usual cases first.
        last = self._last
        library = sys.modules.get(self.module)
        if (
            library is None
            or library.__name__ != self.module
            or (
                last is not None
                and self.library is library
                and last._holder.__dict__.get(self._name) is last.value
            )
        ):
            return
        with self._lock:
            holder = self._find(library) if self.users else None
            if holder is None:
                return
            present = getattr(holder, self._name)
            if self._made is not None and present is self._made[1]:
                if self._last is not None:
                    return
                present = self._made[0]
            if self._made is None or present is not self._made[0]:
                self._made = present, self._wrap(present, self)
            self.library = library
            self._last = replace(holder, self._name, self._made[1])

    _begin = refresh

    def _end(self) -> None:
        if self._last is not None:
            self._last.restore()
            self._last = None

    def _find(self, holder: Any) -> Any:
        """Return the part of the library that has the function; None, with a warning, if none has."""
        for owner in self._owners:
            holder = getattr(holder, owner, None)
        if callable(getattr(holder, self._name, None)):
            return holder
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.module} has no {self.path} in this version, so {self.without}",
                ShortcutWarning,
                stacklevel=3,
            )
        return None
