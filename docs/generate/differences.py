"""Generate the page of known differences from real servers, from the comparison's tables, and of
behavior decided by this project.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from pytest_fakecloud.kv.settings import VERSION
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.table.versions import LATER_OPTIONS, MODULES, VENDOR, is_later
from tests.kv.comparison.known import KNOWN
from tests.kv.comparison.normalise import RULES

from . import decided
from .markdown import HEAD, table

VALKEYS = (
    *(name for name, spec in COMMANDS.items() if spec.only_in == "valkey"),
    "the API of scripts as `server`",
)
"""Commands, and one of the later behaviours, that exist in Valkey but in no version of Redis."""


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
    words = {word: since for word, since in LATER_OPTIONS.items() if since != VENDOR} | {
        spec.name: spec.since
        for spec in COMMANDS.values()
        if spec.group not in MODULES.values()
        and spec.only_in != "vendor"
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
        'With `version="7.2"`, it reports that version and has the commands and options up to it. The '
        "fake was compared with Redis 7.0.15 and Valkey 9.1 only. For the versions between them, only "
        "the commands and options that they have are known.",
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


def _code(words: list[str]) -> str:
    return ", ".join(word if "`" in word else f"`{word}`" for word in words)
