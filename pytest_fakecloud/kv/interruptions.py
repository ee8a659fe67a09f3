"""Interruptions between two commands of a client by commands of another client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from ..core.errors import ContractError, brief, counted
from ..core.matching import Condition, Query, Question
from ..core.registry import Registry
from ..core.threads import step_aside
from .command_fields import COMMAND, COMMAND_FIELDS, command_name, facts_of
from .model import HANDSHAKE

Place: TypeAlias = "int | tuple[Condition[str], Condition[str]] | None"
"""A position: a number of commands before it, two names, or None for all positions."""
Grouping: TypeAlias = Literal["alone", "pipelined", "queued"]
"""How a command is grouped with others: alone (also first in a pipeline), later in a REST pipeline, or
inside a transaction, which nothing can interrupt.
"""

_MOST_CLIENTS = 1000
"""Number of senders that an interruption remembers; it then forgets the one that was quiet longest."""
_MOST_SEEN = 40
"""Number of command names that the error of an unused interruption lists."""


class CommandSender(NamedTuple):
    """The origin of a command: its connection if there is one, and over REST the user's name."""

    connection: tuple[str, int] | None
    user: str | None = None


class _Progress(NamedTuple):
    """A client's number, the number of commands it has sent, and the name of the last one."""

    client: int
    sent: int = 0
    last: str = ""


class _Gap(NamedTuple):
    """A position between two commands of a client; ``place`` is the number of commands before it."""

    before: str
    after: str
    place: int
    number: int


class Interruptions(list["Between"]):
    """The active interruptions of a server, and the listeners to its pipelines."""

    def __init__(self) -> None:
        self._planned: list[Between] = []
        """All interruptions since the last reset, also those that have ended."""
        self.listeners: Registry[Callable[[], None]] = Registry()
        """Functions that are called between two commands of a pipeline, before the interruptions."""
        self.lock = threading.Lock()
        self._running = False

    def add(self, interruption: Between) -> None:
        self.append(interruption)
        self._planned.append(interruption)

    def clear(self) -> None:
        self.end()
        self._planned.clear()

    def end(self) -> None:
        for interruption in [*self]:
            interruption.remove()

    def start_over(self) -> None:
        """Begin new sequences of commands, because the data was restored."""
        with self.lock:
            for interruption in [*self]:
                interruption._progress.clear()

    def unmet(self) -> list[str]:
        """Return messages for interruptions that never happened and have not raised an error for it."""
        return [
            interruption._why_unused()
            for interruption in self._planned
            if not interruption.hits and not interruption._has_raised
        ]

    def before(
        self, sender: CommandSender, line: list[bytes], grouping: Grouping = "alone"
    ) -> bool:
        """Run the interruptions that are due before a client's command; return whether any was."""
        active = [*self]
        if not active or self._running:
            return False
        name = command_name([word.decode("utf-8", "replace") for word in line[:2]])
        if name.partition(" ")[0] in HANDSHAKE:
            return False
        # Call conditions without the lock, because they are the test's code.
        matched = [interruption for interruption in active if interruption._matches(name, line)]
        with self.lock:
            if self._running:
                return False
            noted = [
                (interruption, interruption._note(sender, name, grouping))
                for interruption in matched
            ]
        due = [
            (interruption, gap)
            for interruption, gap in noted
            if gap is not None and interruption._selects(gap)
        ]
        if not due:
            return False
        with self.lock:
            if self._running:
                return False
            self._running = True
        try:
            step_aside()  # The functions may use other connections.
            for interruption, gap in due:
                interruption._happen(gap.place)
        finally:
            self._running = False
        return True


def _choice_of(commands: int | tuple[Condition[str], Condition[str]]) -> Callable[[_Gap], bool]:
    if type(commands) is int:
        if commands < 1:
            raise ContractError(
                f"commands={commands} is not a position between two commands: pass at least 1"
            )
        return lambda gap: gap.place == commands
    pair = commands if isinstance(commands, tuple | list) else ()
    if len(pair) != 2 or any(name is None for name in pair):
        raise ContractError(
            f"commands={commands!r} is not a position: pass a number of commands, the names of two "
            "neighbours such as ('GET', 'SET'), or leave it out for every position in turn"
        )
    before, after = (Question("commands", name, COMMAND) for name in pair)
    return lambda gap: before.agrees(gap.before) and after.agrees(gap.after)


class Between:
    """An interruption that calls ``run()`` between two commands of a client.

    The two commands are neighbours in a pipeline or separate calls, over REST or over the Redis
    protocol. ``commands`` selects the position: a number for the position after that many commands
    of each client, or a pair for each position between two neighbours with these names (each a
    name, a glob, a pattern or a function). None selects every position. ``where`` are conditions on
    commands, such as ``key="stock:*"``: commands that do not match are ignored, so two matching
    commands are neighbours even if the client sends other commands between them.

    The interruption ends with its ``with`` block, which raises ``ContractError`` with the commands
    that it saw if nothing was interrupted. With ``commands=None``, it can also be iterated: each
    turn of the loop interrupts one position, until a turn has no further position. A loop that
    finds no position at all raises ``ContractError``::

        for place in kv_server.between(run=steal):
            kv_server.restore(before)
            transfer_money()

    An exception of the block itself is never replaced. An interruption that did not happen, and
    could not raise this error, is a strict-mode violation of the kind ``unmet``.

    Decided here: over the Redis protocol, a client is a connection. Over REST it is a connection
    too, but a new connection continues the sequence of the user (token) that it authenticates as,
    because HTTP clients without a connection pool open one for each call. Requests that skip the
    socket (``transport="inprocess"``, ``explore()``) do the same. A connection is new if it has
    sent no command since the interruption began. Nothing runs inside
    ``MULTI``/``EXEC`` or a script, as in Redis: a script is one command, and a transaction over
    REST counts as ``MULTI``, its commands and ``EXEC``. AUTH, CLIENT, HELLO, QUIT, RESET and SELECT
    are ignored, because client libraries send them by themselves. Commands of ``execute()`` are the
    test's own, and commands that arrive while ``run`` runs count as sent by ``run``.
    """

    def __init__(
        self,
        plan: Interruptions,
        commands: Place,
        run: Callable[[], object],
        where: Mapping[str, Any],
    ) -> None:
        self._choice = None if commands is None else _choice_of(commands)
        self._query = Query(where, COMMAND_FIELDS, "command") if where else None
        self._plan: Interruptions | None = plan
        """None once the interruption has ended."""
        self._commands = commands
        self._run: Callable[[], object] | None = run
        self._turn: int | None = None
        """The number of the only position to interrupt in this turn of a loop."""
        self._progress: dict[CommandSender, _Progress] = {}
        self._gaps = 0
        self._clients = 0
        self._seen: dict[int, list[str]] = {}
        """The names of the commands by the number of their client."""
        self._continued: dict[int, str] = {}
        """The command after which a client continued the sequence of its user, by its number."""
        self._seen_in_all = 0
        self._ignored: list[str] = []
        """The commands that did not match ``where``, each with its keys."""
        self._ignored_in_all = 0
        self._saw_transaction = False
        self._has_raised = False
        self._hits = 0
        self._place = 0
        plan.add(self)

    @property
    def hits(self) -> int:
        """The number of interruptions so far."""
        return self._hits

    @property
    def place(self) -> int:
        """The number of matching commands that the interrupted client had sent before the latest
        interruption.
        """
        return self._place

    def remove(self) -> None:
        """End the interruption."""
        # Its plan lists it until the next reset, so it keeps nothing of the fake.
        plan, self._plan, self._run = self._plan, None, None
        if plan is not None:
            plan.remove(self)

    def __iter__(self) -> Iterator[int]:
        if self._commands is not None:
            raise ContractError(
                f"between(commands={self._commands!r}) cannot be iterated: "
                "leave out commands= to iterate over all positions"
            )
        plan = self._active_plan()
        try:
            hits, turn = -1, 0
            # End the loop after a turn without an interruption: no positions are left.
            while self.hits != hits:
                hits, turn = self.hits, turn + 1
                with plan.lock:
                    self._progress.clear()
                    self._gaps, self._turn = 0, turn
                yield turn
        finally:
            self.remove()
        self._check_hits()

    def __enter__(self) -> Self:
        self._active_plan()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True
        self.remove()
        if error is None:
            self._check_hits()

    def _active_plan(self) -> Interruptions:
        if self._plan is None:
            raise ContractError(f"{self!r} has ended: call between() again for another block")
        return self._plan

    def _check_hits(self) -> None:
        __tracebackhide__ = True
        if not self.hits:
            self._has_raised = True
            raise ContractError(self._why_unused())

    def __repr__(self) -> str:
        return f"<{self._as_call()}, {counted(self.hits, 'hit')}>"

    def _matches(self, name: str, line: list[bytes]) -> bool:
        """Return whether a command matches ``where``; remember it for errors if it does not."""
        if self._query is None:
            return True
        facts = facts_of([[word.decode("utf-8", "replace") for word in line]])
        if self._query(facts):
            return True
        self._ignored_in_all += 1
        if self._ignored_in_all <= _MOST_SEEN:
            self._ignored.append(brief(" ".join([name, *facts["key"]])))
        return False

    def _note(self, sender: CommandSender, name: str, grouping: Grouping) -> _Gap | None:
        """Note a command; return the position before it, if its client has sent another one."""
        progress = self._progress.pop(sender, None)
        same_user = None if sender.user is None else CommandSender(None, sender.user)
        if progress is None:
            self._clients += 1
            progress = _Progress(self._clients)
            latest = None if same_user is None else self._progress.get(same_user)
            if latest is not None:
                progress = latest._replace(client=self._clients)
                if self._seen_in_all < _MOST_SEEN:
                    self._continued[self._clients] = f"{latest.last} of client {latest.client}"
        after = _Progress(progress.client, progress.sent + 1, name)
        self._progress[sender] = after
        if same_user is not None:
            self._progress.pop(same_user, None)
            self._progress[same_user] = after
        while len(self._progress) > _MOST_CLIENTS:
            del self._progress[next(iter(self._progress))]
        self._seen_in_all += 1
        if self._seen_in_all <= _MOST_SEEN:
            self._seen.setdefault(progress.client, []).append(name)
        if grouping == "queued":
            self._saw_transaction = True
            return None
        if not progress.sent:
            return None
        self._gaps += 1
        return _Gap(progress.last, name, progress.sent, self._gaps)

    def _selects(self, gap: _Gap) -> bool:
        if self._choice is not None:
            return self._choice(gap)
        return self._turn is None or gap.number == self._turn

    def _happen(self, place: int) -> None:
        """Call ``run``, as if another client's command had arrived at this moment.

        If it raises an ``Exception``, the command returns an error (500 over REST), and the test
        receives a ``ContractError``. Other exceptions, e.g. that of ``pytest.fail()``, propagate.
        """
        run = self._run
        if run is None:
            return
        self._hits += 1
        self._place = place
        try:
            run()
        except Exception as error:
            raise ContractError(
                f"the run= of between() failed after {counted(place, 'command')} of the client: "
                f"{error!r}"
            ) from error

    def _as_call(self) -> str:
        commands = self._commands
        arguments = [] if self._query is None else [*map(str, self._query.questions)]
        if isinstance(commands, tuple | list):
            arguments.insert(0, f"({brief(commands[0])}, {brief(commands[1])})")
        elif commands is not None:
            arguments.insert(0, str(commands))
        return f"between({', '.join(arguments)})"

    def _why_unused(self) -> str:
        """Return a message for an interruption that never happened, with the commands it saw."""
        clients = [", ".join(names) for names in self._seen.values()]
        if len(clients) > 1:
            clients = [
                f"{', '.join(names)} of client {number}"
                + (f" after {self._continued[number]}" if number in self._continued else "")
                for number, names in self._seen.items()
            ]
        saw = "; ".join(clients) or (
            "no command of a client" if self._query is None else "no matching command of a client"
        )
        more = self._seen_in_all - _MOST_SEEN
        if more > 0:
            saw += f"; and {counted(more, 'more command')}"
        if self._ignored:
            saw += f", and ignored {', '.join(self._ignored)}"
            more = self._ignored_in_all - _MOST_SEEN
            if more > 0:
                saw += f" and {counted(more, 'more command')}"
        inside = ". Nothing runs inside a transaction" if self._saw_transaction else ""
        return (
            f"{self._as_call()} interrupted nothing. It saw {saw}{inside}. "
            "Name two neighbouring commands of one client, or remove the interruption"
        )
