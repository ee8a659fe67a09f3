"""Generate the pages of fixtures, of pytest's options and ini settings, and of the command."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from typing import Any

from pytest_fakecloud import Cloud, plugin
from pytest_fakecloud.cli import make_parser
from pytest_fakecloud.cloud.base import fixture_fake
from pytest_fakecloud.pytest_run.ini import INI_SETTINGS, IniSetting
from pytest_fakecloud.standalone.options import ELSEWHERE

from .markdown import HEAD, PACKAGE, inline, table


def fixtures_page() -> str:
    """Return the page of fixtures as Markdown."""
    parts = [
        f"{HEAD}\n# Fixtures\n\n",
        "Every fixture of the plugin, as `pytest --fixtures -v` lists them. A fake lasts for one "
        "test, or as long as `fakecloud_scope` says ([scopes](../guides/session-scope.md)).\n\n",
    ]
    documented = list(documented_fixtures())
    parts.append(
        table(
            ("Fixture", "Scope", "Gives"),
            ((f"[`{name}`](#{name})", scope, kind) for name, scope, kind, _ in documented),
        )
    )
    for name, _, _, text in documented:
        parts.append(f"\n({name})=\n## `{name}`\n\n{text}\n")
        if name == "fakecloud_env":
            parts.append("\n" + table(("Fixture", "Variable", "Its value"), _variables()))
    return "".join(parts)


_WORDS = (
    "url", "password", "token", "read_only_token", "database_url", "username",
    "current_signing_key", "next_signing_key",
)  # fmt: skip


def _variables() -> Iterator[tuple[str, str, str]]:
    """Yield each environment variable of each fake, with the attribute that it contains."""
    with Cloud() as cloud:
        for fixture in ("kv_server", "vector_index", "broker", "queue"):
            fake = fixture_fake(cloud, fixture)
            for variable, value in fake.env.items():
                word = next(
                    (attribute for attribute in _WORDS if getattr(fake, attribute, None) == value),
                    None,
                )
                assert word or not value, f"no attribute of {fixture} is {variable}"
                meaning = f"`{fixture}.{word}`" if word else "empty"
                yield f"`{fixture}`", f"`{variable}`", meaning


def documented_fixtures() -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, scope, type and description of each fixture of the plugin."""
    module = ast.parse((PACKAGE / "plugin.py").read_text(encoding="utf-8"))
    for node in module.body:
        marks = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        mark = next(
            (ast.unparse(mark) for mark in marks if "pytest.fixture" in ast.unparse(mark)), ""
        )
        if not mark or not isinstance(node, ast.FunctionDef) or node.returns is None:
            continue
        kind = ast.unparse(node.returns).removeprefix("Generator[").partition(", None")[0]
        paragraphs = (ast.get_docstring(node) or "").split("\n\n")
        scope = next((name for name in ("session", "_scope") if name in mark), "function")
        scope = {"_scope": "`fakecloud_scope`"}.get(scope, scope)
        yield node.name, scope, f"`{kind}`", "\n\n".join(map(inline, paragraphs))


def page() -> str:
    """Return the page of options as Markdown."""
    return "".join(
        [
            f"{HEAD}\n# Options\n\n## On pytest's command line\n\n",
            table(
                ("Option", "What it does"),
                (
                    (f"`{_named(name, attributes)}`", str(attributes["help"]))
                    for name, attributes in plugin.OPTIONS.items()
                ),
            ),
            "\n## In the ini file\n\n",
            "In `pytest.ini`, `tox.ini`, or below `[tool.pytest.ini_options]` of `pyproject.toml`.\n\n",
            table(
                ("Setting", "Default", "What it is"),
                (
                    (
                        f"`{name}`",
                        f"`{_default(setting)}`" if setting.default != [] else "none",
                        setting.help,
                    )
                    for name, setting in INI_SETTINGS.items()
                ),
            ),
            "\n## The marker\n\n",
            "`@pytest.mark.fakecloud(…)` on a test, a class or a module takes the "
            "[settings](settings.md) of the test's fakes, by keyword.\n",
            *_command(),
        ]
    )


def _named(name: str, attributes: dict[str, Any]) -> str:
    choices = attributes.get("choices")
    return f"{name}={attributes.get('metavar') or '|'.join(choices or ('VALUE',))}"


def _default(setting: IniSetting) -> str:
    if isinstance(setting.default, bool):
        return str(setting.default).lower()
    return str(setting.default or setting.choices[0])


def _command() -> Iterator[str]:
    yield "\n## The command `pytest-fakecloud`\n"
    parser = make_parser()
    commands = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    for name, command in commands.choices.items():
        yield f"\n### `pytest-fakecloud {name}`\n\n{command.description}\n\n"
        yield table(("Option", "What it does"), _arguments(command))
    yield f"\n{ELSEWHERE}\n"


def _arguments(command: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in command._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        value = action.metavar or ("|".join(action.choices) if action.choices else "")
        if not action.option_strings:
            name = str(value)
        elif action.nargs == 0:
            name = action.option_strings[0]
        else:
            name = f"{action.option_strings[0]} {value or action.dest.upper()}"
        yield f"`{name}`", action.help or _PROGRAM


_PROGRAM = "the command to run, after two dashes"
