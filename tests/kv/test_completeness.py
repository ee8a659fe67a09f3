"""The scenarios exercise every command and option word of the table, and every error text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate.kv_commands import REASONS
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.settings import VERSION, KVConfig
from pytest_fakecloud.kv.table.registry import COMMANDS as TABLE
from pytest_fakecloud.kv.table.registry import command_table
from tests.kv.comparison.templates import NOT_COMPARED, TEMPLATES, TEMPLATES_FILE
from tests.kv.conftest import NOW, Run
from tests.kv.scenarios import FOLDER, Scenario, every_scenario, play
from tests.kv.scenarios.effects import ObservedEffects
from tests.kv.table import TABLE_FILE, WITHOUT_SERVER
from tests.kv.table.test_layout import MODULES, module_of_group
from tests.notations import complete, sections

ERRORS = sections(Path(__file__).with_name("errors.txt"))["errors"]

IN_REDIS = command_table("redis", VERSION["redis"]).commands
"""The commands of a stock Redis server."""


def test_every_data_command_is_compared_with_real_servers() -> None:
    def name(line: str) -> str:
        words = line.split()[:2]
        return " ".join(words) if TABLE[words[0]].subcommands else words[0]

    compared = {name(line) for lines in TEMPLATES.values() for line in lines}
    excluded = {word.replace("|", " ") for words in NOT_COMPARED.values() for word in words.split()}
    commands = {
        spec.name for spec in TABLE.values() if spec.group in TEMPLATES and not spec.subcommands
    }
    missing = commands - compared - excluded - WITHOUT_SERVER
    complete(
        TEMPLATES_FILE,
        (f"below `== {TABLE[name].group}`: {name} <template>" for name in sorted(missing)),
        "NOT_COMPARED of tests/kv/comparison/templates.py (or vendor or redis to its row in "
        "kv/table/commands.txt, if neither Redis 7.0 nor Valkey 9.1 has the command)",
    )
    assert not compared & WITHOUT_SERVER
    assert not compared & excluded


EFFECTS = ("value_at", "ttl_at", "takes_ttl", "reads_clock", "event")
"""The attributes of ``registry.Effects`` that scenarios compare with what a command does."""
NOT_SHOWN = {
    ("RESTORE", "value_at"), ("RESTORE-ASKING", "value_at"),  # the value is that of the payload
    *((name, "reads_clock") for name in TABLE if name.startswith("SEARCH.")),  # read by the index
}  # fmt: skip
"""Effects that no scenario can show."""


class Played:
    """What the scenarios exercise: commands, option words and effects of commands, and error texts.

    ``unknown_words`` are words in capitals that are no options, with their commands (`WITHOUT_SERVER`).
    ``lengths`` are the numbers of words of command lines that succeed, ``wrong_lengths`` of those that
    are rejected because of it.
    """

    def __init__(self) -> None:
        self.commands: set[str] = set()
        self.options: set[tuple[str, str]] = set()
        self.effects: set[tuple[str, str]] = set()
        self.errors: set[str] = set()
        self.unknown_words: set[tuple[str, str]] = set()
        self.lengths: set[tuple[str, int]] = set()
        self.wrong_lengths: set[tuple[str, int]] = set()

    def play(self, dialect: Any, settings: dict[str, Any], scenario: Scenario) -> None:
        engine = KVEngine(Timekeeper(NOW), Ids(7), KVConfig(dialect=dialect, **settings))
        execute = engine.execute

        def followed(session: Session, argv: list[bytes]) -> Any:
            try:
                reply = execute(session, argv)
            except CommandError as error:
                self.note(engine, argv, error)
                raise
            self.note(engine, argv, reply)
            return reply

        observed = ObservedEffects(engine)
        with pytest.MonkeyPatch.context() as monkeypatch:
            observed.watch(monkeypatch)
            monkeypatch.setattr(engine, "execute", followed)
            play(Run(engine, engine.session()), scenario)
        self.effects |= observed.shown

    def note(self, engine: KVEngine, argv: list[bytes], reply: Any) -> None:
        self.errors.update(errors_in(reply))
        spec = engine.table.find(argv)
        if spec is None:
            return
        if isinstance(reply, CommandError):
            if "wrong number of arguments" in str(reply):
                self.wrong_lengths.add((spec.name, len(argv)))
            # A command that is always rejected is exercised by its rejection.
            if spec.name not in REASONS:
                return
        self.commands.add(spec.name)
        self.lengths.add((spec.name, len(argv)))
        if spec.name in WITHOUT_SERVER:
            self.unknown_words.update(
                (spec.name, word.decode())
                for word in argv[spec.argument_words]
                if re.fullmatch(rb"[A-Z][A-Z0-9-]+", word) and word not in spec.option_words
            )
        words = {word.upper() for word in argv[spec.argument_words]}
        self.options.update((spec.name, word) for word in spec.options if word.encode() in words)


def errors_in(reply: Any) -> Iterator[str]:
    """Yield the error texts in a reply."""
    if isinstance(reply, CommandError):
        yield str(reply)
    elif isinstance(reply, list):
        for item in reply:
            yield from errors_in(item)


@pytest.fixture(scope="module")
def played() -> Played:
    played = Played()
    for dialect, settings, scenario in every_scenario().values():
        played.play(dialect, settings, scenario)
    return played


@pytest.mark.slow
def test_scenarios_play_every_command_word_and_effect(played: Played) -> None:
    commands = {spec.name for spec in TABLE.values() if not spec.subcommands}
    words = {(spec.name, word) for spec in TABLE.values() for word in spec.options}
    effects = {
        (spec.name, effect) for spec in TABLE.values() for effect in EFFECTS
        if getattr(spec.effects, effect) not in (None, False, 0)
    }  # fmt: skip
    missing = [
        *((name, f"{name} <arguments> => <reply>") for name in commands - played.commands),
        *((name, f"{name} ... {word} => <reply>") for name, word in words - played.options),
        *(
            (name, f"{name} ... => <reply>  # that shows {effect}")
            for name, effect in effects - played.effects - NOT_SHOWN
        ),
    ]
    complete_scenarios((name, line) for name, line in missing if TABLE[name].group != "cluster")


@pytest.mark.slow
def test_scenarios_show_the_arities_of_commands_without_a_server(played: Played) -> None:
    lines = []
    for name in WITHOUT_SERVER:
        spec = TABLE[name]
        if spec.subcommands:
            continue
        if (name, spec.least) not in played.lengths:
            lines.append((name, f"{name} ... => <reply>  # with {spec.least} words"))
        wrong = [spec.least - 1] if spec.least > 1 + (" " in name) else []
        wrong += [spec.most + 1] if spec.arity > 0 else []
        lines += [
            (name, f"{name} ... => -ARITY  # with {length} words")
            for length in wrong
            if (name, length) not in played.wrong_lengths
        ]
    complete_scenarios(lines)


@pytest.mark.slow
def test_rows_have_the_option_words_that_scenarios_use(played: Played) -> None:
    complete(
        TABLE_FILE,
        (
            f"the option {word} to the row of {name} (or write it in small letters in its scenarios, "
            "if it is a value)"
            for name, word in sorted(played.unknown_words)
        ),
    )


@pytest.mark.slow
def test_scenarios_produce_every_error_text(played: Played) -> None:
    missing = [text for text in ERRORS if not produced(text, played.errors)]
    complete(FOLDER, (f"<file>: ... => -{text}" for text in missing))


def complete_scenarios(lines: Iterable[tuple[str, str]]) -> None:
    """Fail with the lines that scenarios of commands lack."""
    complete(FOLDER, (f"{file_of(name)}: {line}" for name, line in sorted(lines)))


def file_of(name: str) -> str:
    """Return the file of scenarios of a command: that of its function's module, if this is not shared
    by several groups. Those of commands that Redis 7.0 lacks are in ``vendor/``.
    """
    module = MODULES.get(name, "arguments").replace(".", "/")
    folder = "" if name in IN_REDIS else "vendor/"
    return f"{folder}{module_of_group(TABLE[name].group) if module == 'arguments' else module}.txt"


def produced(text: str, errors: set[str]) -> bool:
    pattern = "".join(
        ".*" if part.startswith("<") else re.escape(part)
        for part in re.split(r"(<[a-z0-9A-Z]+>)", text)
    )
    return any(re.match(pattern, error, re.DOTALL) for error in errors)
