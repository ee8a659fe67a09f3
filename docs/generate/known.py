"""Generate the page of known differences from real servers, from the comparison's tables."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from pytest_fakecloud.kv.settings import VERSION
from pytest_fakecloud.kv.table.documented import DOCUMENTED
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.table.versions import LATER, MODULES, OWN, VALKEYS, VENDOR, is_later
from tests.kv.comparison.known import KNOWN
from tests.kv.comparison.normalise import RULES

from .markdown import HEAD, table


def page() -> str:
    """Return the page as Markdown."""
    return "".join(
        [
            f"{HEAD}\n# Known differences\n\n",
            "What the comparison of the key-value engine with Redis 7.0 and Valkey 9.1 "
            "([Fidelity](index.md)) finds and this project does not fix.\n\n",
            "## Differences that stay\n\nThey still count in the rate.\n\n",
            *(f"- {known.reason[:1].upper()}{known.reason[1:]}.\n" for known in KNOWN),
            *_versions(),
            "\n## What is not compared\n\nTwo real servers differ from each other here as well.\n\n",
            table(
                ("Commands", "Why"),
                (
                    (" ".join(f"`{name}`" for name in sorted(rule.commands)), rule.reason)
                    for rule in RULES
                ),
            ),
        ]
    )


def _versions() -> Iterator[str]:
    announced = VERSION["vendor"]
    words = {
        word: since for word, since in LATER.items() if since != VENDOR and word not in VALKEYS
    } | {
        spec.name: spec.since
        for spec in COMMANDS.values()
        if spec.group not in MODULES.values()
        and not spec.name.startswith(OWN)
        and spec.name not in VALKEYS
    }
    later = {word: since for word, since in words.items() if is_later(since, announced)}
    documented = sorted(word for word in later if word.split()[0] in DOCUMENTED)
    others = sorted({*later, *VALKEYS} - {*documented})
    yield "\n## Versions\n"
    for text in (
        f'The stock dialect (`kv_server(dialect="redis")`) announces {VERSION["redis"]} in `INFO`, '
        "`HELLO`, `LOLWUT` and to scripts, and answers as that version does: what came later is an "
        "unknown command, an unknown sub-command or a syntax error; arities, flags, `HELP` and "
        "parameters are that version's, and doubles are printed with 17 digits.",
        "`JSON.*` are the commands of a module there. The stock dialect has them only with "
        '`modules=["ReJSON"]`, and then names the module in `MODULE LIST`, `INFO` and `HELLO`. The '
        "vendor's dialect always has them. With the module the JSON models of redis-om 1.2 work; its "
        "hash models work as on Redis 7.0.15 with and without it. Its `find()` does not work, because "
        "the `FT.*` commands of RediSearch are unknown.",
        '`version="7.2"` has it announce another one and know what came up to it. Only Redis 7.0.15 '
        "and Valkey 9.1 were there to be compared with: of versions between them, what is known is "
        "which words they have.",
        f"The vendor's dialect announces {announced}, up to which the vendor documents its level of "
        "the protocol, and knows more than that version. As the vendor documents: "
        f"{_code(documented)}. Without documentation, decided here: {_code(others)}; but for "
        "`MSETEX` only Valkey has these. `documented_only=True` refuses those commands.",
        "One table, `kv/table/versions.py` with the versions in `kv/table/rows.py`, says what came "
        "when.",
    ):
        yield f"\n{fill(text, 118)}\n"


def _code(words: list[str]) -> str:
    return ", ".join(word if "`" in word else f"`{word}`" for word in words)
