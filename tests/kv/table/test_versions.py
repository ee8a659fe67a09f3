"""The commands of a server's version: later ones are rejected in that version's wording."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate.differences import NEWEST, VALKEYS
from pytest_fakecloud.kv.config import PARAMETERS
from pytest_fakecloud.kv.settings import VERSION
from pytest_fakecloud.kv.table.registry import COMMANDS, Table, command_table
from pytest_fakecloud.kv.table.rows import ROWS
from pytest_fakecloud.kv.table.versions import (
    ANY_OF_SEVERAL,
    EARLIER,
    LATER_BEHAVIOURS,
    LATER_OPTIONS,
    LATER_PARAMETERS,
    MODULES,
    ONLY_STOCK,
    VENDOR,
    as_numbers,
    is_later,
)
from tests.harness import check_each
from tests.kv.comparison.faces import InProcess
from tests.kv.comparison.servers import running
from tests.kv.comparison.wire import Error
from tests.kv.conftest import Run
from tests.kv.table import TABLE_FILE
from tests.notations import complete

STOCK = command_table("redis", VERSION["redis"])
GONE = [name for name in COMMANDS if name not in STOCK.commands]
WORDS = """\
BITOP ANDOR d a b|BITOP DIFF d a b|BITOP DIFF1 d a b|BITOP ONE d a b|CLIENT KILL MAXAGE 9
CONFIG SET set-max-listpack-entries 1|HSCAN h 0 NOVALUES|SCAN 0 WITHTYPE|SET k v IFEQ a
SET k v IFDEQ 0000000000000000|SET k v IFDNE 0000000000000000|SET k v IFNE a
XADD s ACKED MAXLEN 1 * a b|XADD s DELREF MAXLEN 1 * a b|XADD s KEEPREF MAXLEN 1 * a b
XREAD STREAMS s +|XTRIM s MAXLEN 1 ACKED|XTRIM s MAXLEN 1 DELREF|XTRIM s MAXLEN 1 KEEPREF
ZRANK z a WITHSCORE|ZREVRANK z a WITHSCORE|SET k v ifeq a|ZRANK z a WITHSCORE more"""
ONLY_STOCK_WORDS = """\
XADD s IDMP p 1 * a b|XADD s IDMPAUTO p * a b|XREADGROUP GROUP g c CLAIM 5 STREAMS s >
ZINTER 1 z AGGREGATE COUNT|ZINTERSTORE d 1 z AGGREGATE COUNT|ZUNION 1 z AGGREGATE COUNT
ZUNIONSTORE d 1 z AGGREGATE COUNT|VSIM v ELE a WITHATTRIBS|VSIM v ELE a EPSILON 1
JSON.SET j $ 1 FPHA FP16"""
LINES = [line.split() for line in WORDS.replace("\n", "|").split("|")]
ONLY_STOCK_LINES = [line.split() for line in ONLY_STOCK_WORDS.replace("\n", "|").split("|")]
SETTING = ["HSET h f v", "XADD s 1-1 a b", "XGROUP CREATE s g 0", "ZADD z 1 a", "SET k v"]


@pytest.fixture
def stock(run: Run) -> Run:
    run.each(*SETTING)
    return run


@pytest.mark.dialect("redis")
def test_later_words_are_refused(stock: Run) -> None:
    refusals = (
        "ERR syntax error", "ERR Invalid stream ID", "ERR wrong number", "ERR Unknown opt",
        "ERR unknown command",
    )  # fmt: skip

    def check(*line: str) -> None:
        assert stock.error(*line).startswith(refusals)

    check_each(check, map(tuple, LINES + ONLY_STOCK_LINES))


@pytest.mark.parametrize("line", [line for line in LINES if line[0] != "CLIENT"], ids=" ".join)
def test_the_vendor_knows_them(stock: Run, line: list[str]) -> None:
    if line[-1] == "more":
        assert stock.error(*line) == "ERR wrong number of arguments for 'zrank' command"
    else:
        stock(*line)


@pytest.mark.dialect("redis", version=NEWEST, modules=["ReJSON"])
@pytest.mark.parametrize("line", ONLY_STOCK_LINES, ids=" ".join)
def test_the_latest_stock_server_knows_what_the_vendor_lacks(stock: Run, line: list[str]) -> None:
    stock(*line)


@pytest.mark.parametrize("line", ONLY_STOCK_LINES, ids=" ".join)
def test_the_vendor_lacks_them(stock: Run, line: list[str]) -> None:
    refusals = ("ERR syntax error", "ERR Invalid stream ID", "ERR Command is not available")
    assert stock.error(*line).startswith(refusals)


@pytest.mark.parametrize(
    "name", [name for name, spec in COMMANDS.items() if spec.only_in == "stock"]
)
def test_the_vendor_lacks_commands_of_stock_servers(run: Run, name: str) -> None:
    assert run.error(*name.split(), "a").startswith("ERR Command is not available")
    assert run("COMMAND", "INFO", name.replace(" ", "|")) == [None]


@pytest.mark.completeness
def test_each_later_option_has_a_line() -> None:
    texts = [" ".join(line) + " " for line in LINES + ONLY_STOCK_LINES]
    complete(
        Path(__file__),
        (
            f"to WORDS: a line of {name} with {word}"
            for name, _, word in (option.rpartition(" ") for option in LATER_OPTIONS)
            if not any(text.startswith(f"{name} ") and f" {word} " in text for text in texts)
        ),
    )


@pytest.mark.dialect("redis")
def test_later_commands_are_unknown(run: Run) -> None:
    def check(name: str) -> None:
        words = name.split()
        if words[0] not in STOCK.commands:
            line = "".join(f"'{word}' " for word in (*words[1:], "a", "b"))
            text = f"ERR unknown command '{words[0]}', with args beginning with: {line}"
        else:
            text = f"ERR unknown subcommand '{words[1]}'. Try {words[0]} HELP."
        assert run.error(*words, "a", "b") == text
        assert run("COMMAND", "INFO", name.replace(" ", "|")) == [None]
        assert run("COMMAND", "DOCS", name.replace(" ", "|")) == []
        assert run.error("ACL", "SETUSER", "u", "+" + name.replace(" ", "|").lower()).startswith(
            "ERR Error in ACL SETUSER modifier"
        )
        assert run.error("COMMAND", "GETKEYS", *words, "a", "b") == "ERR Invalid command specified"

    check_each(check, zip(GONE))


def test_a_real_server_refuses_them_alike() -> None:
    face = InProcess()
    with running(version=VERSION["redis"]) as server:
        asked = [*(line.split() for line in SETTING), *([*name.split(), "a", "b"] for name in GONE)]
        for line in [*asked, *LINES, *ONLY_STOCK_LINES]:
            argv = [word.encode() for word in line]
            ours, theirs = face.call(argv), server.call(argv)
            assert ours == theirs or Error not in (type(ours), type(theirs)), line


def test_the_table_of_a_version_ends_there() -> None:
    versions = ["7.0.15", "7.2.0", "7.4.0", "8.0.0", "8.2.0", "8.4.0", "9.1.0"]
    tables = [command_table("redis", version) for version in versions]
    sizes = [len(table.commands) for table in tables]
    assert sizes == sorted(set(sizes))
    assert "CLIENT NO-TOUCH" in tables[1].commands
    assert "HEXPIRE" not in tables[1].commands
    assert "HEXPIRE" in tables[2].commands
    assert "vendor" not in {spec.only_in for spec in tables[-1].commands.values()}
    json = {name for name in COMMANDS if name.startswith("JSON.")}
    assert (
        command_table("redis", "7.0.15", ("ReJSON",)).commands.keys()
        == STOCK.commands.keys() | json
    )
    assert command_table("redis", "7.0.15") is STOCK
    assert Table().commands.keys() == COMMANDS.keys()


def test_a_command_looks_as_it_did_before_its_later_words() -> None:
    assert (STOCK.commands["ZRANK"].arity, COMMANDS["ZRANK"].arity) == (3, -3)
    assert (STOCK.commands["WAIT"].flags, COMMANDS["WAIT"].flags) == ({"noscript"}, {"blocking"})
    assert "IFEQ" in COMMANDS["SET"].options
    assert "IFEQ" not in STOCK.commands["SET"].options
    assert STOCK.commands["GET"].function is COMMANDS["GET"].function
    assert b"SETINFO" not in (STOCK.commands["CLIENT"].subcommands or {})
    assert STOCK.commands["CLIENT ID"].container is STOCK.commands["CLIENT"]


@pytest.mark.completeness
def test_the_vendor_announces_one_version_and_knows_more(run: Run) -> None:
    announced = VERSION["vendor"]
    assert f"redis_version:{announced}\r\n" in run("INFO server").decode()
    assert run("EVAL", "return redis.REDIS_VERSION", 0) == announced.encode()
    specs = [spec for spec in COMMANDS.values() if spec.only_in not in ("vendor", "stock")]
    later = {spec.name for spec in specs if is_later(spec.since, announced)} - {*VALKEYS}
    assert later >= {"DELEX", "DIGEST", "MSETEX", "SDIFFCARD", "SUNIONCARD"}
    documented = {name for name, spec in COMMANDS.items() if spec.documented}
    complete(
        TABLE_FILE,
        (
            f"to the row of {name}: `*` if the vendor documents it, or before the version `vendor-` if "
            "no stock server has it, `stock-` if no other server has it, or `valkey-` if no version of "
            "Redis has it"
            for name in sorted(later - documented)
        ),
    )
    later_words = {**LATER_OPTIONS, **LATER_PARAMETERS, **LATER_BEHAVIOURS}
    assert later_words.keys() > ONLY_STOCK
    stock = {word: since for word, since in later_words.items() if since != VENDOR}
    words = {word for word, since in stock.items() if is_later(since, announced)} - ONLY_STOCK
    assert words == {"SET IFEQ", "SET IFNE", "SET IFDEQ", "SET IFDNE", ANY_OF_SEVERAL}
    assert documented.isdisjoint(VALKEYS)


def test_every_entry_of_the_table_of_versions_means_something() -> None:
    """Options and parameters exist, and the versions can be compared."""
    for option in LATER_OPTIONS:
        name, _, word = option.rpartition(" ")
        assert word in COMMANDS[name].options, option
    assert LATER_PARAMETERS.keys() <= PARAMETERS.keys()
    for since in {*LATER_OPTIONS.values(), *LATER_PARAMETERS.values(), *LATER_BEHAVIOURS.values()}:
        assert since == VENDOR or as_numbers(since) > as_numbers(VERSION["redis"])
    for name, (since, flags, effects) in EARLIER.items():
        assert as_numbers(since) > as_numbers(VERSION["redis"])
        row = ROWS[name]
        assert flags != row.flags or effects != row.effects
    assert {spec.group for spec in COMMANDS.values()} > set(MODULES.values())
