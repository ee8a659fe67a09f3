"""The promise ``isolated()``: no cycle of reads and writes contradicts an isolation level.

The method is that of Elle (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
Experimental Observations", 2020): values are unique, so a read shows which transaction wrote its
value, and a read of a list shows the order of all writes before it. The names of the anomalies are
those of Adya ("Weak Consistency", 1999).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from ...core.errors import ContractError, shown, unknown_name
from ..subject.promises import Check, expect
from ..values.history import History, Operation

Level: TypeAlias = Literal[
    "read uncommitted",
    "read committed",
    "snapshot isolation",
    "serializable",
    "strict serializable",
]
"""Isolation levels, each of which also forbids what the ones before it forbid."""
LEVELS: tuple[Level, ...] = get_args(Level)

_Dependency: TypeAlias = Literal["ww", "wr", "rw", "rt"]
"""A write before a write, a write before its read, a read before the next write, and real time."""


class _Cycles(NamedTuple):
    """A kind of cycle: the dependency that it begins with, and those of the rest of the cycle."""

    name: str
    level: Level
    first: _Dependency
    rest: frozenset[_Dependency]


_WRITES: frozenset[_Dependency] = frozenset({"ww"})
_VALUES: frozenset[_Dependency] = frozenset({"ww", "wr"})
_ALL: frozenset[_Dependency] = frozenset({"ww", "wr", "rw"})
_CYCLES = (
    _Cycles("G0 (dirty write)", "read uncommitted", "ww", _WRITES),
    _Cycles("G1c (circular information flow)", "read committed", "wr", _VALUES),
    _Cycles("G-single (read skew)", "snapshot isolation", "rw", _VALUES),
    _Cycles("G2 (write skew)", "serializable", "rw", _ALL),
    _Cycles("order against real time", "strict serializable", "rt", _ALL | {"rt"}),
)


@dataclass(eq=False)
class _Transaction:
    """A call of the function that runs transactions: its steps, and what they read."""

    operation: Operation
    name: str
    steps: list[tuple[str, str, Any]]
    """The kind, the key and the value of each step; a read without an answer is left out."""

    @property
    def is_aborted(self) -> bool:
        """Whether the function returned None, because the transaction wrote nothing."""
        return self.operation.ended is not None and self.operation.result is None

    def writes(self, key: str) -> list[Any]:
        return [value for kind, name, value in self.steps if name == key and kind != "read"]

    def __str__(self) -> str:
        return f"{self.name} = {self.operation!r}"


class _Read(NamedTuple):
    """A read of what other transactions wrote: all elements of a list, or a register's value."""

    transaction: _Transaction
    key: str
    values: tuple[Any, ...]


class _Edge(NamedTuple):
    source: _Transaction
    target: _Transaction
    dependency: _Dependency
    reason: str


@dataclass
class _Log:
    """The transactions of one trial, with their writes and reads."""

    transactions: list[_Transaction]
    writers: dict[tuple[str, Any], _Transaction] = field(default_factory=dict)
    """The transaction that wrote each value to each key."""
    lists: set[str] = field(default_factory=set)
    reads: list[_Read] = field(default_factory=list)


def isolated(name: str, level: Level = "serializable") -> Check:
    """Check that transactions are isolated: no cycle of their reads and writes contradicts the level.

    ``name`` is the name of a function marked with ``observed`` that runs transactions. Its argument
    is a list of steps: ``("read", key)``, ``("append", key, value)`` for a list or ``("write", key,
    value)`` for a register, where no value is written twice. It returns a list with an answer for
    each step, of which those of reads count, or None if it wrote nothing. ``transactions()`` are
    choices of such arguments for ``drawn()``.

    The levels are ``"read uncommitted"`` (which forbids G0), ``"read committed"`` (also G1a, G1b and
    G1c), ``"snapshot isolation"`` (also G-single and lost updates), ``"serializable"`` (also G2), and
    ``"strict serializable"``, whose order respects time. A transaction that raised an exception may
    have taken effect. Each level requires that a transaction reads its own writes, and that lists
    keep what was appended.
    """
    expect(isinstance(name, str), "isolated", "the name of an operation", name)
    if level not in LEVELS:
        raise ContractError(unknown_name("isolation level", str(level), LEVELS))

    def check(history: History) -> None:
        __tracebackhide__ = True
        operations = [operation for operation in history.operations if operation.name == name]
        anomaly = next(anomalies(operations, level), None)
        if anomaly is not None:
            raise AssertionError(f"not {level}: {anomaly}")

    return check


def anomalies(operations: Sequence[Operation], level: Level) -> Iterator[str]:
    """Yield descriptions of what contradicts an isolation level."""
    log = _read_log(operations)
    yield from _internal(log)
    orders: dict[str, list[Any]] = {}
    yield from _list_orders(log, orders)
    if _forbids(level, "read committed"):
        yield from _dirty_reads(log)
    if _forbids(level, "snapshot isolation"):
        yield from _lost_updates(log)
    edges = list(_edges(log, orders))
    if _forbids(level, "strict serializable"):
        edges += _real_time(log)
    for kind in _CYCLES:
        if _forbids(level, kind.level):
            cycle = _shortest_cycle(edges, kind)
            if cycle:
                yield f"{kind.name}: {_described(cycle)}"


def _forbids(level: Level, forbidden: Level) -> bool:
    return LEVELS.index(level) >= LEVELS.index(forbidden)


def _read_log(operations: Sequence[Operation]) -> _Log:
    """Return the transactions; raise ``ContractError`` for those that cannot be analysed."""
    transactions = [
        _Transaction(operation, f"T{number}", list(_steps(operation)))
        for number, operation in enumerate(operations, 1)
    ]
    log = _Log(transactions)
    verbs: dict[str, str] = {}
    for transaction in transactions:
        for verb, key, value in transaction.steps:
            if verb == "read":
                if isinstance(value, list | tuple):
                    log.lists.add(key)
                continue
            if verbs.setdefault(key, verb) != verb:
                raise ContractError(
                    f"isolated(): {key} is both a list and a register: use two keys"
                )
            if (key, value) in log.writers:
                raise ContractError(
                    f"isolated(): {shown(value)} is written to {key} twice, so that a read does not "
                    "show whose value it returns: write values that differ, as transactions() does"
                )
            log.writers[key, value] = transaction
    log.lists.update(key for key, verb in verbs.items() if verb == "append")
    log.lists.difference_update(key for key, verb in verbs.items() if verb == "write")
    return log


def _steps(operation: Operation) -> Iterator[tuple[str, str, Any]]:
    arguments = [*operation.args, *operation.kwargs.values()]
    steps = arguments[0] if len(arguments) == 1 else None
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        raise ContractError(
            f"isolated(): {operation!r} is no transaction: call the function with one argument, a "
            "list of steps"
        )
    answers = operation.result if operation.ended is not None else None
    if answers is not None and not (isinstance(answers, Sequence) and len(answers) == len(steps)):
        raise ContractError(
            f"isolated(): {operation!r} must return a list with an answer for each of its "
            f"{len(steps)} steps, or None if it wrote nothing"
        )
    for index, step in enumerate(steps):
        kind, key, value = (*step, None) if len(step) == 2 else step
        if kind not in ("read", "append", "write") or (len(step) == 2) != (kind == "read"):
            raise ContractError(
                f"isolated(): {shown(step)} is not a step: write ('read', key), ('append', key, "
                "value) or ('write', key, value)"
            )
        if kind != "read":
            yield kind, key, value
        elif answers is not None:
            yield kind, key, answers[index]


# -- anomalies of single reads ---------------------------------------------------------------------


def _internal(log: _Log) -> Iterator[str]:
    """Yield reads that contradict the transaction's own writes; note those of others' writes."""
    for transaction in log.transactions:
        own: dict[str, list[Any]] = {}
        for kind, key, value in transaction.steps:
            written = own.setdefault(key, [])
            if kind != "read":
                written.append(value)
            elif key in log.lists:
                elements = list(value or ())
                others = elements[: len(elements) - len(written)]
                if others + written != elements:
                    yield _at(transaction, f"read {key} = {value!r} after it appended {written}")
                else:
                    log.reads.append(_Read(transaction, key, tuple(others)))
            elif not written:
                values = () if value is None else (value,)
                log.reads.append(_Read(transaction, key, values))
            elif value != written[-1]:
                yield _at(transaction, f"read {key} = {value!r} after it wrote {written[-1]!r}")


def _at(transaction: _Transaction, text: str) -> str:
    return f"{transaction.name} {text}\n  {transaction}"


def _list_orders(log: _Log, orders: dict[str, list[Any]]) -> Iterator[str]:
    """Yield reads of lists that contradict each other; set the order of each list's elements."""
    for read in log.reads:
        for value in read.values:
            if (read.key, value) not in log.writers:
                yield _at(read.transaction, f"read {value!r} in {read.key}, which nobody wrote")
        if read.key in log.lists:
            if len(set(read.values)) < len(read.values):
                text = f"read an element of {read.key} twice: {list(read.values)}"
                yield _at(read.transaction, text)
            longest = orders.setdefault(read.key, [])
            shorter, longer = sorted((list(read.values), longest), key=len)
            if longer[: len(shorter)] != shorter:
                text = f"read {read.key} = {list(read.values)}, and another read returned {longest}"
                yield _at(read.transaction, text)
            orders[read.key] = longer


def _dirty_reads(log: _Log) -> Iterator[str]:
    for read in log.reads:
        for value in read.values:
            writer = log.writers.get((read.key, value))
            if writer is not None and writer.is_aborted:
                text = f"read {read.key} with {value!r}, which {writer.name} did not keep"
                yield f"G1a (aborted read): {_at(read.transaction, text)}\n  {writer}"
        for value in read.values[-1:]:
            writer = log.writers.get((read.key, value))
            if writer is None or writer is read.transaction:
                continue
            if writer.writes(read.key)[-1] != value:
                text = f"read {read.key} with {value!r}, before {writer.name} wrote more"
                yield f"G1b (intermediate read): {_at(read.transaction, text)}\n  {writer}"


def _lost_updates(log: _Log) -> Iterator[str]:
    """Yield pairs of transactions that read the same state of a key, and both wrote to the key."""
    updates: dict[tuple[str, tuple[Any, ...]], _Transaction] = {}
    for read in log.reads:
        transaction = read.transaction
        if transaction.is_aborted or not transaction.writes(read.key):
            continue
        other = updates.setdefault((read.key, read.values), transaction)
        if other is not transaction:
            state = list(read.values) if read.key in log.lists else _register(read.values)
            yield (
                f"lost update: {other.name} and {transaction.name} both read {read.key} = {state!r} "
                f"and wrote to it\n  {other}\n  {transaction}"
            )


def _register(values: tuple[Any, ...]) -> Any:
    return values[0] if values else None


# -- dependencies ----------------------------------------------------------------------------------


def _edges(log: _Log, orders: Mapping[str, list[Any]]) -> Iterator[_Edge]:
    """Yield the dependencies between different transactions that the reads show."""
    for edge in itertools.chain(
        _write_orders(log, orders), _reads_from(log), _anti_dependencies(log, orders)
    ):
        if edge.source is not edge.target:
            yield edge


def _write_orders(log: _Log, orders: Mapping[str, list[Any]]) -> Iterator[_Edge]:
    for key, order in orders.items():
        for value, following in itertools.pairwise(order):
            first, second = log.writers.get((key, value)), log.writers.get((key, following))
            if first is not None and second is not None:
                yield _ww(first, second, key, value, following)
    for read, written in _updates_of_registers(log):
        writer = log.writers.get((read.key, _register(read.values)))
        if writer is not None:
            yield _ww(writer, read.transaction, read.key, read.values[0], written)


def _ww(source: _Transaction, target: _Transaction, key: str, before: Any, after: Any) -> _Edge:
    text = f"{source.name} wrote {before!r} to {key} before {target.name} wrote {after!r}"
    return _Edge(source, target, "ww", text)


def _updates_of_registers(log: _Log) -> Iterator[tuple[_Read, Any]]:
    """Yield reads of registers whose transaction wrote the next value, with this value."""
    for read in log.reads:
        written = read.transaction.writes(read.key)
        if read.key not in log.lists and written and not read.transaction.is_aborted:
            yield read, written[0]


def _reads_from(log: _Log) -> Iterator[_Edge]:
    for read in log.reads:
        for value in read.values[-1:]:
            source, target = log.writers.get((read.key, value)), read.transaction
            if source is not None:
                text = f"{target.name} read {value!r} in {read.key}, which {source.name} wrote"
                yield _Edge(source, target, "wr", text)


def _anti_dependencies(log: _Log, orders: Mapping[str, list[Any]]) -> Iterator[_Edge]:
    following: dict[tuple[str, tuple[Any, ...]], list[Any]] = {}
    for read, written in _updates_of_registers(log):
        following.setdefault((read.key, read.values), []).append(written)
    for (key, value), writer in log.writers.items():
        # Each kept value of a register follows the state without a value.
        if key not in log.lists and _has_effect(log, writer):
            following.setdefault((key, ()), []).append(value)
    for read in log.reads:
        if read.key in log.lists:
            values = orders[read.key][len(read.values) :][:1]
        else:
            values = following.get((read.key, read.values), [])
        for value in values:
            source, target = read.transaction, log.writers.get((read.key, value))
            if target is not None:
                text = f"{source.name} read {read.key} before {target.name} wrote {value!r}"
                yield _Edge(source, target, "rw", text)


def _has_effect(log: _Log, transaction: _Transaction) -> bool:
    """Return whether a transaction ended without an exception, or another one read its writes."""
    if transaction.operation.ended is not None:
        return not transaction.is_aborted
    return any(
        log.writers.get((read.key, value)) is transaction
        for read in log.reads
        for value in read.values
    )


def _real_time(log: _Log) -> Iterator[_Edge]:
    for source, target in itertools.permutations(log.transactions, 2):
        ended = source.operation.ended
        if ended is not None and ended < target.operation.began:
            text = f"{source.name} ended before {target.name} began"
            yield _Edge(source, target, "rt", text)


# -- cycles ----------------------------------------------------------------------------------------


def _shortest_cycle(edges: Iterable[_Edge], kind: _Cycles) -> list[_Edge]:
    """Return the edges of the shortest cycle of a kind; none if there is no such cycle."""
    following: dict[_Transaction, list[_Edge]] = {}
    first_edges = []
    for edge in edges:
        if edge.dependency in kind.rest:
            following.setdefault(edge.source, []).append(edge)
        if edge.dependency == kind.first:
            first_edges.append(edge)
    cycles = ([edge, *path] for edge in first_edges if (path := _path(following, edge)))
    return min(cycles, key=len, default=[])


def _path(following: Mapping[_Transaction, list[_Edge]], edge: _Edge) -> list[_Edge]:
    """Return the shortest path from the target of an edge back to its source."""
    paths: dict[_Transaction, list[_Edge]] = {edge.target: []}
    waiting = deque([edge.target])
    while waiting:
        transaction = waiting.popleft()
        for step in following.get(transaction, ()):
            if step.target not in paths:
                paths[step.target] = [*paths[transaction], step]
                waiting.append(step.target)
    return paths.get(edge.source, [])


def _described(cycle: Sequence[_Edge]) -> str:
    transactions = dict.fromkeys(edge.source for edge in cycle)
    lines = [", and ".join(edge.reason for edge in cycle)]
    return "\n  ".join([*lines, *map(str, transactions)])
