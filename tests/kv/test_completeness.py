"""The scenarios exercise every command and option word of the table, and every error text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import Any

import pytest

from docs.generate.kv_commands import REASONS
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.errors import CommandError, Template
from pytest_fakecloud.kv.scripting import errors as scripting_errors
from pytest_fakecloud.kv.settings import VERSION, KVConfig
from pytest_fakecloud.kv.table.exceptions import OTHER_TTLS
from pytest_fakecloud.kv.table.groups import GROUPS
from pytest_fakecloud.kv.table.registry import COMMANDS as TABLE
from pytest_fakecloud.kv.table.registry import command_table
from pytest_fakecloud.kv.table.rows import ROWS
from pytest_fakecloud.kv.table.synopsis import Argument
from tests.kv.comparison.templates import NOT_COMPARED, TEMPLATES, TEMPLATES_FILE
from tests.kv.conftest import NOW, Run
from tests.kv.scenarios import FAILURES, FOLDER, Scenario, every_scenario, play
from tests.kv.scenarios.observed import ObservedEffects
from tests.kv.table import FUNCTION_MODULES, TABLE_FILE, WITHOUT_SERVER, module_of_group
from tests.notations import complete

pytestmark = pytest.mark.completeness

IN_REDIS = command_table("redis", VERSION["redis"]).commands
"""The commands of a stock Redis server."""


def test_every_data_command_is_compared_with_real_servers() -> None:
    def name(line: str) -> str:
        words = line.split()[:2]
        return " ".join(words) if TABLE[words[0]].subcommands else words[0]

    compared = {name(line) for lines in TEMPLATES.values() for line in lines}
    excluded = {word.replace("|", " ") for words in NOT_COMPARED.values() for word in words.split()}
    commands = {
        spec.name for spec in TABLE.values() if GROUPS[spec.group].has_data and not spec.subcommands
    }
    missing = commands - compared - excluded - WITHOUT_SERVER
    complete(
        TEMPLATES_FILE,
        (f"below `== {TABLE[name].group}`: {name} <template>" for name in sorted(missing)),
        "NOT_COMPARED of tests/kv/comparison/templates.py (or, if neither Redis 7.0 nor Valkey 9.1 has "
        "the command, `vendor-` or `redis-` before the version in its row in kv/table/commands.txt)",
    )
    assert not compared & WITHOUT_SERVER
    assert not compared & excluded


NOT_SHOWN = {
    ("RESTORE", "value"), ("RESTORE-ASKING", "value"),  # the value is that of the payload
    *((name, "time") for name in TABLE if name.startswith("SEARCH.")),  # read by the index
}  # fmt: skip
"""Effects that no scenario can show."""


class Played:
    """What the scenarios exercise: commands, option words and effects of commands, and error texts.

    ``unknown_words`` are words in capitals that are no options, with their commands.
    ``lengths`` are the numbers of words of command lines that succeed, ``rejected_lengths`` of those
    that are rejected, and ``wrong_lengths`` of those that are rejected because of it.
    """

    def __init__(self) -> None:
        self.commands: set[str] = set()
        self.options: set[tuple[str, str]] = set()
        self.effects: set[tuple[str, str]] = set()
        self.errors: set[str] = set()
        self.unknown_words: set[tuple[str, str]] = set()
        self.lengths: set[tuple[str, int]] = set()
        self.rejected_lengths: set[tuple[str, int]] = set()
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
            self.rejected_lengths.add((spec.name, len(argv)))
            if "wrong number of arguments" in str(reply):
                self.wrong_lengths.add((spec.name, len(argv)))
            # A command that is always rejected is exercised by its rejection.
            if spec.name not in REASONS:
                return
        self.commands.add(spec.name)
        self.lengths.add((spec.name, len(argv)))
        if GROUPS[spec.group].has_data:
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
        with suppress(*FAILURES):  # `test_scenario` reports them.
            played.play(dialect, settings, scenario)
    return played


@pytest.mark.slow
def test_scenarios_play_every_command_word_and_effect(played: Played) -> None:
    commands = {spec.name for spec in TABLE.values() if not spec.subcommands}
    words = {(spec.name, word) for spec in TABLE.values() for word in spec.options}
    effects = {
        *((name, "time") for name, row in ROWS.items() if "time" in row.effects.split()),
        *((name, "other TTL") for name in OTHER_TTLS),
        *((spec.name, "ttl") for spec in TABLE.values() if spec.ttl_unit),
        *((spec.name, "value") for spec in TABLE.values() if spec.value_at),
        *((name, "effect takes") for name, spec in TABLE.items() if spec.repetition == "takes"),
    }
    missing = [
        *((name, "", "that succeeds") for name in commands - played.commands),
        *((name, word, f"with the option {word}") for name, word in words - played.options),
        *(
            (name, "", f"that shows its {word}")
            for name, word in effects - played.effects - NOT_SHOWN
        ),
    ]
    complete_scenarios(
        f"{file_of(name, option)}: a line of {name} {description}"
        for name, option, description in missing
    )


NEEDS_AN_OPTION = {"XCFGSET"}
"""Commands that reject a line of as few words as servers of Redis report, because it has no option."""


@pytest.mark.slow
def test_scenarios_show_the_arities_of_commands_without_a_server(played: Played) -> None:
    lines = []
    for name in WITHOUT_SERVER:
        spec = TABLE[name]
        if spec.subcommands:
            continue
        file = file_of(name)
        succeeds = name in played.commands and name not in NEEDS_AN_OPTION
        if succeeds and (name, spec.least) not in played.lengths:
            lines.append(f"{file}: a line of {name} with {spec.least} words that succeeds")
        wrong = [spec.least - 1] if spec.least > 1 + (" " in name) else []
        wrong += [spec.most + 1] if spec.arity > 0 else []
        lines += [
            f"{file}: a line of {name} with {length} words => -ARITY"
            for length in wrong
            if (name, length) not in played.wrong_lengths
        ]
        greatest = spec.argument_words.start + greatest_length(spec.arguments)
        if (
            spec.arity < 0
            and greatest < inf
            and (name, greatest + 1) not in played.rejected_lengths
        ):
            lines.append(
                f"{file}: a line of {name} with {greatest + 1:.0f} words, which is an error"
            )
    complete_scenarios(lines)


def greatest_length(arguments: Iterable[Argument]) -> float:
    """Return the greatest number of words of arguments, which is infinite after ``...``."""
    words = 0.0
    for argument in arguments:
        if argument.multiple:
            return inf
        words += bool(argument.token) + (argument.kind == "string")
        lengths = [greatest_length([inner]) for inner in argument.inner]
        words += max(lengths) if argument.kind == "oneof" else sum(lengths)
    return words


VALUES_IN_CAPITALS = {
    *(("PFDEBUG", word) for word in ("DECODE", "ENCODING", "GETREG", "TODENSE")),
    ("SCAN", "LIST"), ("SSCAN", "FOO"),
    ("XADD", "BLOCK"), ("XGROUP CREATE", "BLOCK"), ("XGROUP CREATE", "STREAMS"),
}  # fmt: skip
"""Words of scenarios that look like options: subcommands, a type, and keys that are called like one."""


@pytest.mark.slow
def test_rows_have_the_option_words_that_scenarios_use(played: Played) -> None:
    complete(
        TABLE_FILE,
        (
            f"the option {word} to the row of {name} (or write it in small letters in its scenarios, "
            "if it is a value)"
            for name, word in sorted(played.unknown_words - VALUES_IN_CAPITALS)
        ),
        "VALUES_IN_CAPITALS of tests/kv/test_completeness.py",
    )


@pytest.mark.slow
def test_rows_declare_what_all_lines_show(played: Played) -> None:
    """Only lines together show that a write always leaves what exists."""
    missing = []
    for name, spec in TABLE.items():
        leaves, changes = (name, "leaves what exists"), (name, "changes what exists")
        is_if_new = spec.repetition == "if-new"
        if leaves in played.effects and changes not in played.effects and not is_if_new:
            missing.append(f"the effect if-new to the row of {name}, which leaves what exists")
        if changes in played.effects and is_if_new:
            missing.append(
                f"another effect than if-new to the row of {name}: a line changes what exists"
            )
    complete(TABLE_FILE, missing)


NOT_PRODUCED: set[str] = set()
"""Errors that no client receives."""


@pytest.mark.slow
def test_every_error_text_occurs_in_a_scenario_or_a_test(played: Played) -> None:
    """A scenario produces it, or another test contains the whole text or the name of its constant."""
    produced = "\n".join(played.errors)
    files = [file for file in FOLDER.parent.rglob("*") if file.suffix in (".py", ".txt")]
    written = "\n".join(file.read_text(encoding="utf-8") for file in files)
    complete(
        FOLDER,
        (
            f"<file>: ... => -{text}"
            for name, text in error_texts()
            if not re.search(pattern_of(text), produced)
            and not re.search(rf"\berrors\.{name}\b|{pattern_of(text)}", written)
            and name not in NOT_PRODUCED
        ),
        "NOT_PRODUCED of tests/kv/test_completeness.py",
    )


def error_texts() -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of errors. Constants of type str are parts of error texts."""
    for name, value in [*vars(errors).items(), *vars(scripting_errors).items()]:
        if isinstance(value, Template):
            yield name, value._text
        elif name.isupper() and name[0] != "_" and isinstance(value, bytes | str):
            yield name, value if isinstance(value, str) else value.decode()


def pattern_of(text: str) -> str:
    """Return a regular expression for an error text, whose placeholders match anything."""
    return ".*".join(map(re.escape, re.split(r"<\w+>", text)))


def complete_scenarios(lines: Iterable[str]) -> None:
    """Fail with the lines that scenarios of commands lack."""
    complete(FOLDER, sorted(lines))


def file_of(name: str, option: str = "") -> str:
    """Return the file for a scenario of a command and of its option. It has the name of the function's
    module, or of the group's as long as there is no function. The files outside ``vendor/`` are also
    played on Redis 7.0, which lacks some commands and options.
    """
    module = FUNCTION_MODULES.get(name) or module_of_group(TABLE[name].group)
    has_option = name in IN_REDIS and (not option or option in IN_REDIS[name].options)
    file = f"{module.replace('/', '-')}.txt"
    return file if has_option and (FOLDER / file).exists() else f"vendor/{module}.txt"
