"""Drawn inputs: the arguments of explored functions, and the operations of clients, that vary.

Each client with drawn inputs is a *source*: it draws its input, shrinks one, and runs with one. An
input is a plain value, so that a failure can print it and a replay can pass it again.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from ....core.errors import ContractError, shown, unknown_name
from ...subject.clients import DrawnClient, Inputs
from ...subject.programs import Functions, Program, named_functions

K = TypeVar("K")
Call: TypeAlias = tuple[str, dict[str, Any]]
"""A call of an operation: its name, and its drawn arguments."""

EXAMPLES = 100
"""Number of values that Hypothesis draws from a strategy (decided here, its own default)."""
_REPEATED = 100
"""Number of inputs in a row that are not new, after which there are probably no others."""


class Drawing:
    """The random choices of one search, which its seed determines."""

    def __init__(self, seed: int | str) -> None:
        self._seed = str(seed)
        self.chance = random.Random(self._seed)
        self.numbers = itertools.count(1)
        """Numbers that no two writes of one input share."""
        self._examples: dict[int, list[Any]] = {}

    def example(self, strategy: Any) -> Any:
        """Return one of the values that Hypothesis draws from a strategy."""
        examples = self._examples.setdefault(id(strategy), [])
        if not examples:

            def collect(value: Any) -> bool:
                examples.append(value)
                return False

            self._find(strategy, collect)
        return self.chance.choice(examples)

    def simplest(self, strategy: Any, value: Any, breaks: Callable[[Any], bool]) -> Any:
        """Return the simplest value of a strategy that breaks the promise, as Hypothesis shrinks it.

        Hypothesis draws the same values again, among them the one to shrink.
        """
        return self._find(strategy, breaks, value)

    def _find(self, strategy: Any, condition: Callable[[Any], bool], default: Any = None) -> Any:
        import hypothesis

        settings = hypothesis.settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            verbosity=hypothesis.Verbosity.quiet,
        )
        try:
            return hypothesis.find(
                strategy, condition, settings=settings, random=random.Random(self._seed)
            )
        except (hypothesis.errors.NoSuchExample, hypothesis.errors.Flaky):
            # A condition is flaky if the time for shrinking ends between two of its calls.
            return default


class _ListedChoices:
    """Choices from a list; those before a value are simpler."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def draw(self, drawing: Drawing) -> Any:
        return drawing.chance.choice(self._values)

    def shrink(self, value: Any, breaks: Callable[[Any], bool], drawing: Drawing) -> Any:
        simpler = itertools.takewhile(lambda choice: bool(choice != value), self._values)
        return next(filter(breaks, simpler), value)


class _StrategyChoices:
    """Choices that a strategy of Hypothesis draws."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy

    def draw(self, drawing: Drawing) -> Any:
        return drawing.example(self._strategy)

    def shrink(self, value: Any, breaks: Callable[[Any], bool], drawing: Drawing) -> Any:
        return drawing.simplest(self._strategy, value, breaks)


class Transactions:
    """Choices of transactions, for ``isolated()``: lists of reads, appends and writes."""

    def __init__(self, lists: Sequence[str], registers: Sequence[str], most: int) -> None:
        self._lists = lists
        self._registers = registers
        self._most = most

    def draw(self, drawing: Drawing) -> list[tuple[Any, ...]]:
        return [self._step(drawing) for _ in range(drawing.chance.randint(1, self._most))]

    def _step(self, drawing: Drawing) -> tuple[Any, ...]:
        key = drawing.chance.choice([*self._lists, *self._registers])
        if drawing.chance.random() < 0.5:
            return "read", key
        return "append" if key in self._lists else "write", key, next(drawing.numbers)

    def shrink(
        self, value: list[tuple[Any, ...]], breaks: Callable[[Any], bool], drawing: Drawing
    ) -> list[tuple[Any, ...]]:
        return _fewest(value, breaks)


_Choices: TypeAlias = _ListedChoices | _StrategyChoices | Transactions
"""The values that an argument is drawn from."""


def transactions(
    lists: Sequence[str] = (), registers: Sequence[str] = (), *, most: int = 3
) -> Transactions:
    """Choices of transactions for an argument of ``drawn()``, which ``isolated()`` can check.

    A transaction is a list of up to ``most`` steps over these keys: ``("read", key)``,
    ``("append", key, value)`` for a list and ``("write", key, value)`` for a register. No value
    appears twice.
    """
    for keys in (lists, registers):
        if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
            raise ContractError(
                f"{shown(keys)} is not a list of keys: pass transactions(['a', 'b'])"
            )
    if not (lists or registers) or set(lists) & set(registers):
        raise ContractError(
            "transactions() needs keys, each of them either a list or a register: "
            "pass transactions(lists=['a'], registers=['b'])"
        )
    return Transactions(lists, registers, _at_least_1("most", most))


def _choices_of(name: str, argument: object) -> _Choices:
    if isinstance(argument, Transactions):
        return argument
    # An object can be a strategy only if Hypothesis has been imported.
    strategies = sys.modules.get("hypothesis.strategies")
    if strategies is not None and isinstance(argument, strategies.SearchStrategy):
        return _StrategyChoices(argument)
    if isinstance(argument, Sequence) and not isinstance(argument, str | bytes) and argument:
        return _ListedChoices(argument)
    raise ContractError(
        f"{name}={shown(argument)} are no choices: pass a list, such as [1, 5, 100], or a strategy "
        "of Hypothesis"
    )


class InputSource(DrawnClient):
    """A client that draws its input."""

    def draw(self, drawing: Drawing) -> Any:
        raise NotImplementedError

    def shrink(self, value: Any, breaks: Callable[[Any], bool], drawing: Drawing) -> Any:
        raise NotImplementedError

    def check(self, value: object) -> None:
        """Raise ``ContractError`` for a value that cannot be the input of this client."""
        raise NotImplementedError


class DrawnCall(InputSource):
    """A call of a function with drawn arguments."""

    def __init__(self, function: Callable[..., object], choices: Mapping[str, _Choices]) -> None:
        self.__name__ = getattr(function, "__name__", "client")
        self._function = function
        self._choices = choices
        self.functions = [function]

    def draw(self, drawing: Drawing) -> dict[str, Any]:
        return {name: choices.draw(drawing) for name, choices in self._choices.items()}

    def shrink(
        self, value: dict[str, Any], breaks: Callable[[Any], bool], drawing: Drawing
    ) -> dict[str, Any]:
        return shrunk(value, self._choices, breaks, drawing)

    def check(self, value: object) -> None:
        if not isinstance(value, Mapping) or set(value) != set(self._choices):
            raise ContractError(
                f"{shown(value)} are not the drawn arguments of {self.__name__}: pass a dict with "
                f"{', '.join(self._choices) or 'no entries'}"
            )

    def call(self, value: Mapping[str, Any]) -> object:
        return self._function(**copy.deepcopy(dict(value)))


def drawn(function: Callable[..., object], **choices: Any) -> DrawnCall:
    """A client of ``explore()``, or one of its ``operations()``, whose arguments are drawn.

    Each argument has a list of choices, of which the first are the simplest, or a strategy of
    Hypothesis: ``drawn(transfer, amount=[1, 50, 1000], to=st.text())``. A function gets a copy of its
    arguments in each trial.
    """
    if not callable(function):
        raise ContractError(f"{shown(function)} is not a function: pass drawn(function, name=[…])")
    if isinstance(function, DrawnClient):
        raise ContractError("drawn() takes a function, not a client whose input is drawn already")
    try:
        inspect.signature(function).bind(**choices)
    except TypeError as error:
        name = getattr(function, "__name__", shown(function))
        raise ContractError(
            f"{name}() cannot be called with {', '.join(choices) or 'no arguments'}: {error}. Pass "
            "choices for each argument without a default, by its name"
        ) from None
    return DrawnCall(
        function, {name: _choices_of(name, argument) for name, argument in choices.items()}
    )


class Operations(InputSource):
    """Calls of several operations, of which any are made in any order."""

    def __init__(self, operations: Mapping[str, DrawnCall], most: int) -> None:
        self._operations = operations
        self.most = most
        """Maximum number of calls."""
        self.functions = [
            function for operation in operations.values() for function in operation.functions
        ]

    def draw(self, drawing: Drawing) -> list[Call]:
        return self.draw_calls(drawing, drawing.chance.randint(1, self.most))

    def draw_calls(self, drawing: Drawing, count: int) -> list[Call]:
        names = list(self._operations)
        drawn_names = [drawing.chance.choice(names) for _ in range(count)]
        return [(name, self._operations[name].draw(drawing)) for name in drawn_names]

    def shrink(
        self, value: list[Call], breaks: Callable[[Any], bool], drawing: Drawing
    ) -> list[Call]:
        calls = dict(enumerate(_fewest(value, breaks)))
        names = [name for name, _ in calls.values()]

        def calls_with(arguments: Mapping[int, Any]) -> list[Call]:
            return list(zip(names, arguments.values(), strict=True))

        simplest = shrunk(
            {at: arguments for at, (_, arguments) in calls.items()},
            {at: self._operations[name] for at, name in enumerate(names)},
            lambda arguments: breaks(calls_with(arguments)),
            drawing,
        )
        return calls_with(simplest)

    def check(self, value: object) -> None:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise ContractError(f"{shown(value)} is not a list of operations: {_AS_PRINTED}")
        for call in value:
            if not isinstance(call, tuple) or len(call) != 2:
                raise ContractError(
                    f"{shown(call)} is not an operation and its arguments: {_AS_PRINTED}"
                )
            if call[0] not in self._operations:
                raise ContractError(unknown_name("operation", str(call[0]), self._operations))
            self._operations[call[0]].check(call[1])

    def call(self, value: Sequence[Call]) -> object:
        calls = [partial(self._operations[name].call, arguments) for name, arguments in value]
        if any(map(inspect.iscoroutinefunction, self.functions)):
            return self._call_async(calls)
        return [call() for call in calls]

    async def _call_async(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        results = []
        for call in calls:
            result = call()
            results.append(await result if inspect.isawaitable(result) else result)
        return results


_AS_PRINTED = "pass inputs= as a failure has printed them"


def operations(run: Functions, *, most: int = 5) -> Operations:
    """A client of ``explore()`` that calls any of these functions, in any order, 1 to ``most`` times.

    ``run`` is a function, a list of functions or a dict of them by name; ``drawn()`` gives them drawn
    arguments. The client returns the list of their results, and gives up at the first exception.
    """
    functions = named_functions("run", run)
    if not functions:
        raise ContractError("operations() needs functions: pass operations([deposit, withdraw])")
    named: dict[str, DrawnCall] = {}
    for name, function in functions:
        if isinstance(function, DrawnClient) and not isinstance(function, DrawnCall):
            raise ContractError(f"{name} is not an operation: pass a function, or drawn(function)")
        if name in named:
            raise ContractError(
                f"two operations have the name {name}: pass a dict that gives each a name"
            )
        named[name] = function if isinstance(function, DrawnCall) else drawn(function)
    return Operations(named, _at_least_1("most", most))


def _at_least_1(name: str, argument: object) -> int:
    if not isinstance(argument, int) or isinstance(argument, bool) or argument < 1:
        raise ContractError(f"{name}={shown(argument)} is not a number of at least 1")
    return argument


def shrunk(
    values: Mapping[K, Any],
    sources: Mapping[K, InputSource | _Choices],
    breaks: Callable[[Mapping[K, Any]], bool],
    drawing: Drawing,
) -> dict[K, Any]:
    """Return values that still break the promise, each as simple as its source can make it."""
    simplest = dict(values)
    for name, source in sources.items():

        def breaks_with(value: Any, name: K = name) -> bool:
            return breaks({**simplest, name: value})

        simplest[name] = source.shrink(simplest[name], breaks_with, drawing)
    return simplest


def _fewest(items: list[Any], breaks: Callable[[list[Any]], bool]) -> list[Any]:
    """Return the items without those that are not needed to break the promise."""
    size = len(items)
    while size:
        start = 0
        while start < len(items):
            fewer = items[:start] + items[start + size :]
            if breaks(fewer):
                items = fewer
            else:
                start += size
        size //= 2
    return items


# -- the inputs of all clients ---------------------------------------------------------------------


def sources_of(programs: Sequence[Program]) -> dict[str, InputSource]:
    """Return the clients whose input is drawn, by name."""
    return {
        program.name: program.function
        for program in programs
        if isinstance(program.function, InputSource)
    }


def distinct_inputs(sources: Mapping[str, InputSource], drawing: Drawing) -> Iterator[Inputs]:
    """Yield inputs, none of them twice, until no new ones are drawn; without sources, the empty one."""
    if not sources:
        return iter([{}])
    return _distinct(
        lambda: {name: source.draw(drawing) for name, source in sources.items()}, drawing
    )


def inputs_with_operations(
    count: int, sources: Mapping[str, InputSource], drawing: Drawing
) -> Iterator[Inputs]:
    """Yield inputs, none of them twice, whose ``operations()`` clients make ``count`` calls together."""
    most = {name: source.most for name, source in sources.items() if isinstance(source, Operations)}

    def draw() -> Inputs:
        counts = Counter(drawing.chance.sample([*most], count, counts=most.values()))
        return {
            name: source.draw_calls(drawing, counts[name])
            if isinstance(source, Operations)
            else source.draw(drawing)
            for name, source in sources.items()
        }

    return _distinct(draw, drawing)


def number_of_operations(inputs: Inputs, sources: Mapping[str, InputSource]) -> int:
    """Return the number of calls that the ``operations()`` clients make together."""
    return sum(
        len(inputs[name]) for name, source in sources.items() if isinstance(source, Operations)
    )


def _distinct(draw: Callable[[], Inputs], drawing: Drawing) -> Iterator[Inputs]:
    seen: set[str] = set()
    repeated = 0
    while repeated < _REPEATED:
        drawing.numbers = itertools.count(1)
        inputs = draw()
        text = repr(inputs)
        if text in seen:
            repeated += 1
            continue
        seen.add(text)
        repeated = 0
        yield inputs


def check_inputs(inputs: object, sources: Mapping[str, InputSource]) -> Inputs:
    """Return inputs that the caller passed; raise ``ContractError`` if they do not fit the clients."""
    if not isinstance(inputs, Mapping) or set(inputs) != set(sources):
        names = ", ".join(sources)
        expected = f"a dict with an entry for {names}" if names else "none, because none are drawn"
        raise ContractError(f"inputs={shown(inputs)} do not fit: pass {expected}")
    for name, source in sources.items():
        source.check(inputs[name])
    return inputs
