"""The keys of command lines, which limits, permissions, reports and explorations share."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.calls import Action
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.command_fields import keys_of
from pytest_fakecloud.kv.report.accesses import of_action
from pytest_fakecloud.kv.report.history import Command
from pytest_fakecloud.kv.scripting.errors import dynamic_key
from pytest_fakecloud.kv.table.arguments import ARGUMENTS
from pytest_fakecloud.kv.table.registry import COMMANDS, EVERYTHING
from pytest_fakecloud.kv.table.synopsis import all_arguments
from pytest_fakecloud.kv.touches import touches_of_command
from pytest_fakecloud.reporting.lookups import Lookups
from tests.kv.conftest import argv
from tests.kv.engine.test_capacity import Bounded

STORING = {
    f"{name} {argument.token}": [name, *["1"] * (spec.least - 1), argument.token, "target"]
    for name, spec in COMMANDS.items()
    for argument in all_arguments(spec.arguments)
    if argument.token and argument.kind == "string" and ARGUMENTS[argument.name].type == "key"
}
"""Command lines with an option that names the key in which the command stores its result."""


def test_the_table_has_commands_with_an_option_for_their_destination() -> None:
    assert STORING.keys() >= {"SORT STORE", "GEORADIUS STORE", "GEORADIUSBYMEMBER STOREDIST"}


@pytest.mark.parametrize("option", STORING)
class TestDestinations:
    def test_are_limited_as_other_keys_are(self, option: str) -> None:
        bounded = Bounded(max_key_size=5)
        assert bounded.refusal(*STORING[option]) == errors.max_key_size(5, 6).decode()

    def test_are_declared_by_scripts_that_lock_their_keys(self, option: str) -> None:
        call = ", ".join(f"'{word}'" for word in STORING[option])
        script = f"#!lua flags=allow-key-locking\nreturn redis.call({call})"
        assert dynamic_key(b"target").decode() in Bounded().refusal("EVAL", script, "1", "1")

    def test_are_keys_of_calls_and_findings(self, option: str) -> None:
        words = STORING[option]
        command = Command(_action(words), words, None)
        assert keys_of(words) == command.keys == ["1", "target"]

    def test_are_written_in_the_history_of_a_report(self, option: str) -> None:
        assert ("target", True) in _in_report(STORING[option])

    def test_are_written_in_an_exploration(self, option: str) -> None:
        words = STORING[option]
        assert ("target", True) in _in_exploration(words)
        # Without the option, the command only reads.
        assert not any(writes for _, writes in _in_exploration(words[:-2]))


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("SET k GET", {(1, False, True)}), ("SET k v GET", {(1, True, True)}),
        ("BITFIELD k GET u8 0", {(1, True, False)}),
        ("BITFIELD k INCRBY u8 0 1", {(1, True, True)}),
        ("SORT k STORE d", {(1, True, False), (3, False, True)}),
        ("COPY a b", {(1, True, False), (2, False, True)}),
        ("EVAL s 2 a b x", {(3, True, True), (4, True, True)}),
        ("ZUNIONSTORE d 2 a b", {(1, False, True), (3, True, False), (4, True, False)}),
        ("XREADGROUP GROUP g c STREAMS a b > >", {(5, True, False), (6, True, False)}),
        ("MIGRATE h 1 '' 0 1 KEYS a", {(7, True, True)}),
    ],
)  # fmt: skip
def test_reads_and_writes_of_keys(line: str, keys: set[tuple[int, bool, bool]]) -> None:
    words = argv((line,))
    positions = EVERYTHING.resolve(words).key_positions(words)
    assert {(at, key.reads, key.writes) for at, key in positions} == keys


def test_a_line_that_only_reads_bits_writes_nothing_in_a_report_and_an_exploration() -> None:
    for line, writes in (("BITFIELD k GET u8 0", False), ("BITFIELD k SET u8 0 1", True)):
        assert _in_report(line.split()) == _in_exploration(line.split()) == {("k", writes)}


def test_a_readonly_command_writes_nothing_in_a_report() -> None:
    # Servers store something with these keys: a cached count, and the state of an index.
    for line in ("PFCOUNT k", "SEARCH.WAITINDEXING k"):
        assert _in_report(line.split()) == {("k", False)}


def test_channels_of_shards_are_no_keys_in_a_report() -> None:
    for line in ("SPUBLISH news hello", "PUBLISH news hello"):
        assert _in_report(line.split()) == set()


def _action(words: list[str]) -> Action:
    action = Action(1, 0, "kv", "kv", "execute", "")
    action.call = words, {}
    return action


def _in_report(words: list[str]) -> set[tuple[str, bool]]:
    """Return the keys that a command accesses in a report, and whether it writes them."""
    accesses = of_action(_action(words), Lookups())
    return {(access.subject.name, access.writes) for access in accesses}


def _in_exploration(words: list[str]) -> set[tuple[str, bool]]:
    """Return the keys that a command accesses in an exploration, and whether it writes them."""
    line = [word.encode() for word in words]
    touches = touches_of_command("kv", 0, 1, EVERYTHING.resolve(line), line)
    return {(touch.name, touch.writes) for touch in touches}
