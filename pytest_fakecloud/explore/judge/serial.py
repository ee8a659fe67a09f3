"""What trials leave: whether an order of calls leaves data that no order of whole clients leaves.

A trial in which only the order of strands differs is *serializable* if some trial in which each client,
worker and delivery runs in one piece leaves the same data and the same results. A client that leaves
nothing counts as one that did not run, such as one that finds its lock taken and gives up.
``search.in_one_piece`` plays the trials in one piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import TypeAlias

from ...core.errors import counted, cut
from ...core.touches import Touch
from ...kv.table import kinds as commands
from ...kv.touches import KEY_OF_DB
from ..fakes.fingerprint import varied
from ..values.trial import Trial
from .services import sends_message

_LONGEST = 120
"""Maximum number of characters of data in words."""

_Outcome: TypeAlias = Mapping[tuple[str, ...], str]
"""What a trial leaves, by what it is: keys, records, messages and results."""


def is_compared(trial: Trial) -> bool:
    """Return whether only orders differ in a trial, and strands have run between each other's calls."""
    if trial.notes or trial.flags & {"stuck", "numbers"}:
        return False
    if not trial.applied.has_only_orders:
        return False
    accesses = trial.effects.accesses
    turns = [name for name, _ in groupby(accesses, lambda access: access.made_by.program)]
    return len(turns) > len({*turns})


def idle_programs(trial: Trial, programs: frozenset[str]) -> frozenset[str]:
    """Return the clients that leave nothing: all that they wrote is as it was before."""
    changed = {*trial.effects.left, *trial.effects.left_with_ttl}
    indexes = {fake for fake, kind, _ in changed if not kind.startswith(KEY_OF_DB)}
    busy = {
        access.made_by.program
        for access in trial.effects.accesses
        if sends_message(access)
        or (
            (access.has_effect or access.sets_number_again)
            and any(key[:3] in changed or key.fake in indexes for key in access.keys)
        )
    }
    return programs - busy


def differences(
    trial: Trial, serial_trial: Trial, clients: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield what two trials leave that differs, and both in words."""
    caches = _invalidated(trial)
    outcome = _outcome(trial, caches, clients)
    serial_outcome = _outcome(serial_trial, caches, clients)
    for subject in dict.fromkeys((*outcome, *serial_outcome)):
        name, missing = subject[-1], _MISSING[subject[0]]
        text, serial_text = outcome.get(subject, missing), serial_outcome.get(subject, missing)
        if text != serial_text:
            text, serial_text = cut(text, _LONGEST), cut(serial_text, _LONGEST)
            yield name, f"{name} {text}; it {serial_text} if each client runs in one piece"


_MISSING = {
    "data": "is as before", "changes": "is not set", "messages": "is not sent", "results": "is missing"
}  # fmt: skip
"""The words for what is left by one of two trials only, by its kind."""


def _outcome(
    trial: Trial, caches: Collection[tuple[str, str, str]], clients: Collection[str]
) -> _Outcome:
    """Return what a trial leaves, in words: data, how often they were set, messages and results."""
    outcome: dict[tuple[str, ...], str] = {}
    for data, content in (*trial.effects.left.items(), *trial.effects.left_with_ttl.items()):
        if data in caches or data in trial.effects.left:
            outcome["data", *data] = f"is {content}"
    changes: Counter[tuple[str, ...]] = Counter()
    messages: Counter[str] = Counter()
    for access in trial.effects.accesses:
        if sends_message(access):
            messages[varied(f"{access.text} {access.content}")] += 1
        elif access.name in commands.LOSES_UPDATES - commands.DELETES_ANY and access.has_effect:
            # Two clients that overwrite the same data have both acted, although one is seen.
            changes.update(key[:3] for key in access.keys if trial.effects.remaining.get(key))
    for subject, number in changes.items():
        outcome["changes", *subject] = f"is set {counted(number, 'time')}"
    for message, number in messages.items():
        outcome["messages", message] = f"is sent {counted(number, 'time')}"
    for name, strand in trial.strands.items():
        if name in clients and strand.result is not None and " at 0x" not in strand.result:
            outcome["results", f"the result of {name}"] = f"is {varied(strand.result)}"
    return {tuple(map(varied, subject)): words for subject, words in outcome.items()}


def _invalidated(trial: Trial) -> set[tuple[str, str, str]]:
    """Return the keys that a strand deletes and another one writes, such as the copies of a cache:
    whether one is left, although it has a TTL, is no matter of time.
    """
    deleters: dict[Touch, set[str]] = {}
    writers: dict[Touch, set[str]] = {}
    for access in trial.effects.accesses:
        if access.call is None and access.is_write:
            roles = deleters if access.name in commands.DELETIONS else writers
            for key in access.keys:
                roles.setdefault(key, set()).add(access.actor)
    return {
        key[:3]
        for key, roots in deleters.items()
        if any(writer not in roots for writer in writers.get(key, ()))
    }
