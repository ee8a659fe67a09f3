"""The effects in rows of the command table, and the TTL of a command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fakecloud.kv import commands
from pytest_fakecloud.kv.table.registry import COMMANDS, _specs_of, command, spec_of
from pytest_fakecloud.kv.table.rows import read
from pytest_fakecloud.kv.table.synopsis import all_arguments
from pytest_fakecloud.kv.table.ttl import find_ttl
from tests.kv.table.__main__ import facts_of
from tests.notations import rows


@pytest.mark.parametrize(
    ("line", "error"), rows(Path(__file__).with_name("wrong_rows.txt"), "errors", raw=True)
)
def test_a_wrong_row_is_an_error_that_names_it(line: str, error: str) -> None:
    def read_columns() -> None:
        for spec in _specs_of(read(f"[list]\n{line}").values()).values():
            list(all_arguments(spec.arguments))

    with pytest.raises(ValueError, match=re.escape(error.removesuffix("…"))) as raised:
        read_columns()
    assert str(raised.value).startswith("commands.txt, row LSHED: ")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("LPUSHH", "'LPUSHH' has no row in commands.txt; add one, or use .* names: LPUSH, LPUSHX"),
        ("xgroup create", "'xgroup create' has no row .* names: XGROUP CREATE,"),
        (
            "GET",
            f"GET already has the function get of {commands.__name__}.string; remove one of them",
        ),
        ("LPUSH", f"LPUSH already has the function push of {commands.__name__}.list; remove"),
    ],
)
def test_a_wrong_name_of_a_function_is_an_error_that_names_it(name: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        command(name)(lambda session, args: None)


def test_an_unknown_group_is_an_error_that_names_its_row() -> None:
    with pytest.raises(
        ValueError, match=r"row LSHED: \[lists\] above it is not a group; use one of "
    ):
        read("[lists]\nLSHED 1.0.0")


def test_two_rows_of_a_command_are_an_error() -> None:
    with pytest.raises(ValueError, match="row LSHED: it is the second row of this command"):
        read("[list]\nLSHED 1.0.0\n[string]\nLSHED 1.0.0")


def test_an_empty_line_between_rows_is_skipped() -> None:
    assert [*read("[list]\nLSHED 1.0.0\n\nLTAKE 1.0.0\n\n[string]\n\nGIVE 1.0.0\n")] == [
        "LSHED", "LTAKE", "GIVE",
    ]  # fmt: skip


def test_the_only_key_is_at_a_fixed_position() -> None:
    names = ("GET", "OBJECT FREQ", "LCS", "MGET", "EVAL", "PING")
    assert [COMMANDS[name].only_key for name in names] == [1, 2, 0, 0, 0, 0]


def test_the_facts_that_follow_from_a_row() -> None:
    assert [*facts_of("blpop")] == [
        "BLPOP",
        "  ACL categories: @blocking @list @slow @write",
        "  repetition: takes",
        "  options: none",
        "  true: always_timed changes_keys",
        "  false: changes_any_key changes_only_ttl counts_reads has_fields hidden keeps_key may_wait "
        "other_ttl rest sets_ttl sets_ttl_of_fields",
        "  kinds: BLOCKING CONSUMES ONLY_DELETES TAKES",
    ]


NOW_US = 1_000_000_000
TTLS = {
    "EXPIRE k 5": ("EXPIRE 5", NOW_US + 5_000_000),
    "PEXPIREAT k 5": ("PEXPIREAT 5", 5_000),
    "SETEX k 5 EX": ("SETEX 5", NOW_US + 5_000_000),
    "psetex k 5 v": ("PSETEX 5", NOW_US + 5_000),
    "SET EX EX px 5": ("PX 5", NOW_US + 5_000),
    "SET k v EX 5 EX 6": ("EX 6", NOW_US + 6_000_000),
    "MSETEX 2 EX 5 k EX EXAT 7": ("EXAT 7", 7_000_000),
    "HSETEX h EX 5 FIELDS 1 PX 9": ("EX 5", NOW_US + 5_000_000),
    "HGETEX h EX 5": ("EX 5", NOW_US + 5_000_000),
    "HEXPIREAT h 5 FIELDS 1 f": ("HEXPIREAT 5", 5_000_000),
    "EXPIRE k soon": ("EXPIRE soon", None),
    **dict.fromkeys(("EXPIRE k", "SET k v KEEPTTL", "GETEX k", "RPUSH q EX 5")),
}


@pytest.mark.parametrize("line", TTLS)
def test_the_ttl_of_a_command_line(line: str) -> None:
    words = line.split()
    spec = spec_of(words)
    assert spec is not None
    ttl = find_ttl(spec, words)
    assert (ttl and (str(ttl), ttl.deadline_us(NOW_US))) == TTLS[line]
