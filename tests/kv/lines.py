"""Lines of each command about data, on the keys of `Filled` (`growth.py`).

They are in `command_lines.txt`. A command without a line there has one that is derived from its
synopsis: its required arguments, on a copy of a filled key. Its work does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pytest_fakecloud.kv.settings import VERSION
from pytest_fakecloud.kv.table.groups import GROUPS
from pytest_fakecloud.kv.table.registry import CommandSpec, command_table, spec_of
from pytest_fakecloud.kv.table.synopsis import Argument
from tests.kv.conftest import argv
from tests.notations import alternatives, sections

LINES_FILE = Path(__file__).with_name("command_lines.txt")
WITHOUT_LINE = {
    *("JSON.DEBUG HELP", "OBJECT HELP", "XGROUP HELP", "XINFO HELP", "PFSELFTEST"),
    *("MOVE", "RESTORE"),
}
"""Commands without a line: MOVE needs another database, RESTORE a payload, the others read no data."""
FILLED_KEYS = {
    **{group: group for group in ("string", "list", "set", "hash", "stream", "geo", "array", "json")},
    "bitmap": "string", "hyperloglog": "hll", "sorted-set": "zset", "generic": "hash",
}  # fmt: skip
"""The filled key of each group of commands."""
WORDS = {
    name: word
    for word, names in {
        "copy": "key source",
        "e5": "field member", "x": "value element",
        "0": "cursor start", "5": "stop end index offset count increment decrement",
        "1": "numkeys numfields numids timeout", "5-1": "id",
        "7": "score longitude latitude",
        "5000": "seconds", "5000000": "milliseconds",
        "9000000000": "unix-time-seconds", "9000000000000": "unix-time-milliseconds",
    }.items()
    for name in names.split()
}  # fmt: skip
"""The words of derived lines, by the names of arguments in synopses."""


def derived_lines(spec: CommandSpec, words: Mapping[str, str] = WORDS) -> tuple[str, str] | None:
    """Return the line that copies a filled key, and that of a command with the copy; None if it has no
    key, or an argument without a word.
    """
    line = [spec.name, *_words(spec.arguments, words)]
    if spec.group not in FILLED_KEYS or "copy" not in line or None in line:
        return None
    return f"COPY {FILLED_KEYS[spec.group]} copy REPLACE", " ".join(filter(None, line))


def _words(arguments: Iterable[Argument], words: Mapping[str, str]) -> Iterator[str | None]:
    for argument in arguments:
        if argument.optional:
            continue
        if argument.token:
            yield argument.token
        if argument.inner:
            is_choice = argument.kind == "oneof"
            yield from _words(argument.inner[:1] if is_choice else argument.inner, words)
        elif argument.kind == "string":
            yield words.get(argument.name)


def command_of(line: str) -> str:
    """Return the name of the last command of a line."""
    spec = spec_of([word.decode("latin-1") for word in argv((line.split(" ; ")[-1],))])
    assert spec is not None, line
    return spec.name


GROWTH = {
    growth: [line for text in texts for line in alternatives(text)]
    for growth, texts in sections(LINES_FILE).items()
}
"""The lines by the growth of the last command's work."""
WRITTEN = frozenset(command_of(line) for lines in GROWTH.values() for line in lines)
"""The commands that have lines in the file."""
DATA = {
    spec.name: spec
    for spec in command_table("vendor", VERSION["vendor"]).commands.values()
    if spec.function and GROUPS[spec.group].has_data
}
"""The commands about data, by name, without those that have no function yet."""
DERIVED = {
    # Only the last command counts: the first change of a copy may have to do with all elements.
    name: f"{lines[0]} ; {lines[1]} ; {lines[1]}"
    for name, spec in DATA.items()
    if name not in WRITTEN | WITHOUT_LINE and (lines := derived_lines(spec)) is not None
}
"""The derived lines by the names of the commands."""
GROWTH["constant"] += DERIVED.values()
LINES = dict.fromkeys(line for lines in GROWTH.values() for line in lines)
"""All lines."""
