"""Declare the settings of a fake in one place: name, default, accepted values, meaning.

A service declares its settings in the body of a class, each with its meaning below it::

    class BrokerConfig(FakeConfig):
        max_poll_records: int = setting(500, whole(1))
        \"\"\"Maximum number of records in one response.\"\"\"
        idle_close_ms: int | None = setting("300s", optional(duration("ms")))
        \"\"\"…\"\"\"

``read()`` creates an instance from the keywords that a test passes. The field of a duration ends
with its unit, which the keyword omits: ``idle_close="5m"`` sets ``idle_close_ms``. The documentation
is generated from the class, and so is the ``TypedDict`` of the keywords (``BrokerSettings``),
which type checkers read in the service's stub in ``_typing/``.

A fake whose engine can be replaced by a real server (``engine=``) calls ``check_engine()``, which
rejects settings that the chosen engine ignores. By default, a setting applies only to the engine in
memory; declare ``engines="both"`` once the code behind ``engine=`` honours it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from numbers import Real
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    cast,
    dataclass_transform,
)

from .errors import ContractError, shown, unknown_name
from .timers import Duration, duration_us

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
B = TypeVar("B")
Engines = Literal["memory", "real", "both"]
"""Where a setting has an effect: with the engine in memory, with a real server, or with both."""
DeliveryMode = Literal["driven", "background"]
"""When the queue delivers: in calls of the test that move the clock, or in the background."""
MOST_PORT = 65_535


# -- kinds of values -------------------------------------------------------------------------------


class Kind(NamedTuple, Generic[A_co]):
    """A kind of setting: the values it accepts, and their conversion.

    ``accepts`` is the type annotation of its values, ``expected`` completes the sentence "must be
    …" in an error message, ``fits`` validates a value, ``convert`` converts a valid value and may
    raise ``ContractError``. ``suffix`` is the end of the field's name that its keyword lacks.
    """

    accepts: Any
    expected: str
    fits: Callable[[Any], object]
    convert: Callable[[Any], A_co] = lambda value: value
    suffix: str = ""

    def read(self, name: str, value: object, of: str = "") -> A_co:
        """Return the converted value; raise ``ContractError`` for an invalid one."""
        if not self.fits(value):
            of = f" of {of}" if of else ""
            raise ContractError(f"{name}={shown(value):.200}{of} must be {self.expected}")
        try:
            return self.convert(value)
        except ContractError as error:
            raise ContractError(f"{name}={shown(value):.200}: {error}") from None


def either(first: Kind[A], second: Kind[B]) -> Kind[A | B]:
    """Accept a value that either of two kinds accepts."""
    return Kind(
        first.accepts | second.accepts,
        f"{first.expected}, or {second.expected}",
        lambda value: first.fits(value) or second.fits(value),
        lambda value: first.convert(value) if first.fits(value) else second.convert(value),
        first.suffix,
    )


def optional(kind: Kind[A]) -> Kind[A | None]:
    """Accept None and the values of a kind."""
    return either(kind, _NONE)


_NONE: Kind[None] = Kind(None, "None", lambda value: value is None)


def choice(*choices: A) -> Kind[A]:
    """Accept one of these words."""
    words = " or ".join(map(repr, choices))
    return Kind(Literal[choices], words, lambda value: isinstance(value, str) and value in choices)


SWITCH: Kind[bool] = Kind(bool, "True or False", lambda value: isinstance(value, bool))
DELIVERY: Kind[DeliveryMode] = choice("driven", "background")


@cache  # because checks create the same kinds again and again
def whole(minimum: int | None = None, maximum: int | None = None) -> Kind[int]:
    """Accept an integer within these bounds."""

    def fits(value: object) -> bool:
        return type(value) is int and _is_within(value, minimum, maximum)

    return Kind(int, f"a whole number{_bounds(minimum, maximum)}", fits)


@cache
def number(minimum: float, maximum: float | None = None) -> Kind[float]:
    def fits(value: Any) -> bool:
        return _is_number(value) and _is_within(value, minimum, maximum)

    return Kind(float, f"a number{_bounds(minimum, maximum)}", fits)


def _is_number(value: object) -> bool:
    kind = type(value)
    if kind in (int, float):
        return True
    return kind is not bool and issubclass(kind, Real)


def _is_within(value: Any, minimum: float | None, maximum: float | None) -> bool:
    # NaN is within no bounds, because every comparison with it is false.
    return bool((minimum is None or value >= minimum) and (maximum is None or value <= maximum))


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is None:
        return "" if maximum is None else f" of at most {maximum}"
    return f" of at least {minimum}" if maximum is None else f" from {minimum} to {maximum}"


def text(
    expected: str = "a string", fits: Callable[[str], object] = lambda value: True
) -> Kind[str]:
    """Accept a string; if ``fits`` is given, only one for which it returns true."""
    return Kind(str, expected, lambda value: isinstance(value, str) and fits(value))


def texts(*choices: str) -> Kind[tuple[str, ...]]:
    expected = f"a list of {' or '.join(map(repr, choices))}" if choices else "a list of strings"
    return Kind(
        Sequence[str],
        expected,
        lambda value: (
            isinstance(value, list | tuple)
            and all(isinstance(item, str) and (not choices or item in choices) for item in value)
        ),
        tuple,
    )


def mapping(accepts: Any, expected: str) -> Kind[Any]:
    return Kind(accepts, expected, lambda value: isinstance(value, Mapping))


def duration(unit: Literal["us", "ms"], minimum: int = 0) -> Kind[int]:
    """Accept a duration of at least ``minimum`` units and convert it to an integer number of units."""
    size = {"us": 1, "ms": 1000}[unit]

    def convert(value: Duration) -> int:
        converted = duration_us(value) // size
        if converted < minimum:
            raise ContractError(f"pass a duration of at least {minimum} {unit}")
        return converted

    expected = "a duration: a timedelta, a number of seconds, or a string such as '24h' or '200ms'"
    return Kind(Duration, expected, lambda value: value is not None, convert, f"_{unit}")


# -- declaring and reading -------------------------------------------------------------------------


class Setting(NamedTuple):
    """A declared setting: its kind, its default before conversion, its engines, its field's name.

    ``connects`` is True if it determines the address or the credentials of the fake.
    """

    kind: Kind[Any]
    default: object
    engines: Engines
    connects: bool = False
    attribute: str = ""


def setting(
    default: object, kind: Kind[A], *, engines: Engines = "memory", connects: bool = False
) -> A:
    """Declare a field of a class of settings. ``default`` is written as in a test."""
    return cast(A, Setting(kind, default, engines, connects))


# Type checkers then know the keywords of each class, which its settings determine.
@dataclass_transform(eq_default=False, kw_only_default=True)
class Settings:
    """The base of classes of settings. An instance has the given values as attributes; a setting that
    is not given has its default, which is the attribute of the class.
    """

    _declared: ClassVar[Mapping[str, Setting]] = {}
    """The settings of the class by keyword, those of its base first."""

    def __init_subclass__(cls) -> None:
        declared = dict(cls._declared)
        for name, declaration in [*vars(cls).items()]:
            if isinstance(declaration, Setting):
                declared[name.removesuffix(declaration.kind.suffix)] = declaration._replace(
                    attribute=name
                )
                setattr(cls, name, declaration.kind.read(name, declaration.default))
        cls._declared = declared

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)
        self.__post_init__()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def __post_init__(self) -> None:
        """Reject contradictions, and derive values from others."""


def first_of(*choices: A, engines: Engines = "memory") -> A:
    """Declare a setting that accepts one of these words and whose default is the first one."""
    return setting(choices[0], choice(*choices), engines=engines)


def settings_of(declared: type[Settings]) -> Mapping[str, Setting]:
    """Return the settings that a class declares, by keyword."""
    return declared._declared


def keywords_of(declared: type[Settings], methods: str) -> Any:
    """Return a class of settings as the ``TypedDict`` of the keyword arguments of ``methods``."""
    make: Any = TypedDict
    accepted = {
        name: declaration.kind.accepts for name, declaration in settings_of(declared).items()
    }
    keywords = make(declared.__name__.replace("Config", "Settings"), accepted, total=False)
    keywords.__module__ = declared.__module__
    keywords.__doc__ = (
        f'Keyword arguments of {methods}. "Settings" in the reference explains each of them.'
    )
    return keywords


def connection_settings(declared: type[Settings]) -> frozenset[str]:
    """Return the keywords that determine the address and the credentials of a fake."""
    return frozenset(
        name for name, declaration in settings_of(declared).items() if declaration.connects
    )


def reject_unknown(declared: Any, values: Mapping[str, Any], of: str) -> None:
    """Raise ``ContractError`` for names that are not settings, suggesting the nearest valid one."""
    declarations = settings_of(declared)
    for name in values:
        if name not in declarations:
            raise ContractError(unknown_name(f"setting of {of}", name, declarations))


def read_some(declared: Any, values: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Return the converted values of the given keywords, by the names of their fields. Raises
    ``ContractError`` for unknown names and invalid values; ``of`` is their owner in errors.
    """
    declarations = settings_of(declared)
    reject_unknown(declared, values, of)
    return {
        declarations[name].attribute: declarations[name].kind.read(name, value, of)
        for name, value in values.items()
    }


def read(declared: Callable[..., A], values: Mapping[str, Any], of: str) -> A:
    """Return the settings made from keywords, which must not be changed.

    Raises ``ContractError`` if the keywords are invalid.
    """
    # Most fakes have the default settings, whose validation is the same each time.
    return declared(**read_some(declared, values, of)) if values else _with_defaults(declared)


@cache
def _with_defaults(declared: Callable[..., A]) -> A:
    return declared()


def check(settings: Settings, of: str) -> None:
    """Validate settings that a test created directly. They must keep the values that they are given,
    unlike durations. ``of`` is their owner in errors.
    """
    reject_unknown(type(settings), vars(settings), of)
    for name, declaration in settings_of(type(settings)).items():
        declaration.kind.read(name, getattr(settings, name), of)


def changed_settings(settings: Settings) -> list[str]:
    """Return the keywords of the settings that differ from their defaults."""
    declared = type(settings)
    return [
        name
        for name, declaration in settings_of(declared).items()
        if getattr(settings, declaration.attribute) != getattr(declared, declaration.attribute)
    ]


def check_engine(settings: Settings, engine: str | None, of: str = "") -> None:
    """Raise ``ContractError`` for a setting that has a value of its own but no effect, because it
    applies only to the engine in memory (``engine`` is None), or only to a real server. ``of``
    precedes the name of the setting in the error.
    """
    chosen = "memory" if engine is None else "real"
    declarations = settings_of(type(settings))
    for name in changed_settings(settings):
        if declarations[name].engines in (chosen, "both"):
            continue
        if engine is None:
            raise ContractError(
                f"{of}{name} applies only to a real server: pass engine= as well, or leave out "
                f"{of}{name}"
            )
        raise ContractError(
            f"{of}{name} applies only to the in-memory engine: leave out {of}{name} or engine="
        )


# -- the settings of every fake --------------------------------------------------------------------


class FakeSettings(TypedDict, total=False):
    """Keywords that every fake accepts."""

    name: str | None
    host: str | None
    port: int | None
    token: str | None


_NON_EMPTY = optional(text("a non-empty string", bool))
_PRINTABLE = text(
    "a non-empty string of printable characters", lambda value: value.isprintable() and value
)


class FakeConfig(Settings):
    """Settings of every fake."""

    name: str | None = setting(None, _NON_EMPTY, engines="both")
    """The fake's name in reports and in the control API; the fixture's name by default."""
    host: str | None = setting(None, _NON_EMPTY, engines="both", connects=True)
    """The address to listen on; loopback by default."""
    port: int | None = setting(None, optional(whole(0, MOST_PORT)), engines="both", connects=True)
    """The port to listen on; 0 or None: any free port."""
    token: str | None = setting(None, optional(_PRINTABLE), engines="both", connects=True)
    """The token that clients authenticate with; a random one by default."""
