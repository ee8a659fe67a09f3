"""Generate the page of known differences from real servers, from the comparison's tables, and of
behavior decided by this project.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import NamedTuple

from pytest_fakecloud.kv.settings import VERSION
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.table.versions import LATER_OPTIONS, MODULES, ONLY_STOCK, VENDOR, is_later
from tests.kv.comparison.known import KNOWN
from tests.kv.comparison.normalise import RULES

from . import decided
from .markdown import HEAD, table

VALKEYS = (
    *(name for name, spec in COMMANDS.items() if spec.only_in == "valkey"),
    "the API of scripts as `server`",
)
"""Commands, and one of the later behaviours, that exist in Valkey but in no version of Redis."""


class Missing(NamedTuple):
    """Additions of a version of Redis that a stock server of that version lacks here."""

    commands: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """A command and its option, whose last word is the one that is missing."""
    others: tuple[str, ...] = ()


NEWEST = "8.10"
"""The latest version whose additions are known."""
MISSING = {
    "7.2": Missing(("CLUSTER MYSHARDID",)),
    "7.4": Missing(others=("the field `watch` of `CLIENT LIST`",)),
    "8.0": Missing(
        others=(
            "the commands of the built-in modules (`FT.*`, `TS.*`, `BF.*`, `CF.*`, `CMS.*`, `TOPK.*`, "
            "`TDIGEST.*`; `JSON.*` only with `modules`)",
            "the ACL categories of these modules",
            "the fields `io-thread`, `tot-net-in`, `tot-net-out` and `tot-cmds` of `CLIENT LIST`",
        ),
    ),
    "8.2": Missing(
        ("CLUSTER SLOT-STATS",),
        others=(
            "the section `keysizes` of `INFO`",
            "the parameter `cluster-slot-stats-enabled`",
        ),
    ),
    "8.4": Missing(
        ("CLUSTER MIGRATION", "CLUSTER SYNCSLOTS", "TRIMSLOTS"),
        others=("`cjson.decode_array_with_array_mt` in scripts", "the parameter `lookahead`"),
    ),
    "8.6": Missing(
        (
            "HOTKEYS GET", "HOTKEYS HELP", "HOTKEYS RESET", "HOTKEYS START", "HOTKEYS STOP",
        ),
        others=("the parameter `key-memory-histograms`",),
    ),
    "8.8": Missing(
        others=(
            "the fields `read-events`, `parse-batch-cmd-sum` and `parse-batch-cnt` of `CLIENT LIST`",
            "the parameters `slowlog-entry-max-argc` and `slowlog-entry-max-string-len`",
        ),
    ),
    "8.10": Missing(
        (
            "BACKUP ABORT", "BACKUP CLEANUP", "BACKUP HELP", "BACKUP LIST", "BACKUP SEAL",
            "BACKUP START", "BACKUP STATUS", "BLMOVEM", "HIMPORT DISCARD", "HIMPORT DISCARDALL",
            "HIMPORT PREPARE", "HIMPORT SET", "LMOVEM",
        ),
        (
            "XREAD MAXCOUNT", "XREAD MAXSIZE", "XREADGROUP MAXCOUNT", "XREADGROUP MAXSIZE",
        ),
        ("the original number of arguments in `SLOWLOG GET`",),
    ),
    "unknown": Missing(
        others=(
            "the flags `script_runner` of `EVAL` and its relatives, `denyoom` of `SUBSCRIBE` and its "
            "relatives, and `loading` of reading `CLUSTER` commands, and the arity -3 of `COMMAND "
            "GETKEYS`, in `COMMAND INFO`",
        ),
    ),
}  # fmt: skip
"""What is known to be missing, by the version that added it, from the documentation of Redis."""


def page() -> str:
    """Return the page as Markdown."""
    return "".join(
        [
            f"{HEAD}\n# Differences and decisions\n\n",
            "Where the fakes differ from real servers, and what was [decided here](#decided-here) "
            "because no source describes it.\n\n",
            "## Differences that are not fixed\n\nThe comparison of the key-value engine with Redis "
            "7.0 and Valkey 9.1 ([Fidelity](index.md)) finds these. They count as differences in the "
            "figures.\n\n",
            *(f"- {known.reason[:1].upper()}{known.reason[1:]}.\n" for known in KNOWN),
            *_versions(),
            "\n## What is not compared\n\nTwo real servers also differ from each other in these parts "
            "of a reply.\n\n",
            table(
                ("Commands", "Why"),
                (
                    (" ".join(f"`{name}`" for name in sorted(rule.commands)), rule.reason)
                    for rule in RULES
                ),
            ),
            *decided.section(),
        ]
    )


def _versions() -> Iterator[str]:
    announced = VERSION["vendor"]
    words = {
        word: since
        for word, since in LATER_OPTIONS.items()
        if since != VENDOR and word not in ONLY_STOCK
    } | {
        spec.name: spec.since
        for spec in COMMANDS.values()
        if spec.group not in MODULES.values()
        and spec.only_in not in ("vendor", "stock")
        and spec.name not in VALKEYS
    }
    later = {word: since for word, since in words.items() if is_later(since, announced)}
    documented = sorted(word for word in later if COMMANDS[word.split()[0]].documented)
    others = sorted({*later, *VALKEYS} - {*documented})
    yield "\n## Versions\n"
    for text in (
        f'The stock dialect (`kv_server(dialect="redis")`) reports version {VERSION["redis"]} in '
        "`INFO`, `HELLO`, `LOLWUT` and to scripts, and behaves like that version: later commands and "
        "options are unknown commands, unknown subcommands or syntax errors; arities, flags, `HELP` "
        "and parameters are those of that version, and doubles are printed with 17 digits.",
        "In Redis, `JSON.*` commands belong to a module. The stock dialect has them only with "
        '`modules=["ReJSON"]`, and then lists the module in `MODULE LIST`, `INFO` and `HELLO`. The '
        "vendor's dialect always has them. The JSON models of redis-om 1.2 need the module; its hash "
        "models also work without it. Its `find()` does not work, because the fake does not have the "
        "`FT.*` commands of RediSearch.",
        'With `version="7.2"`, it reports that version and has the commands and options up to it, '
        "except the missing ones below. The fake was compared with Redis 7.0.15 and Valkey 9.1 only; "
        "for later versions of Redis, only the commands and options that they have are known. A "
        f"version later than {NEWEST} is like {NEWEST}.",
        f"The vendor's dialect reports version {announced}, the protocol level that the vendor "
        "documents, and has more commands and options than that version. Documented by the vendor: "
        f"{_code(documented)}. Not documented, and decided here: {_code(others)}; "
        "only Valkey has these. Clients can also run commands that the service rejects, such as `ROLE` "
        "and `SLOWLOG`, because the specification names whole groups of commands; "
        "`documented_only=True` rejects all undocumented ones with the error of the service.",
        "`kv/table/versions.py` and `kv/table/commands.txt` contain the version in which each command "
        "and option was added.",
    ):
        yield f"\n{fill(text, 118)}\n"
    yield "\nMissing in stock servers of later versions:\n\n"
    yield table(
        ("Since", "Missing"),
        (
            (since, "; ".join(filter(None, (_code([*commands, *options]), *others))))
            for since, (commands, options, others) in MISSING.items()
        ),
    )


def _code(words: list[str]) -> str:
    return ", ".join(word if "`" in word else f"`{word}`" for word in words)
