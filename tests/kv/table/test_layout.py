"""The modules of commands and of their tests or scenarios have the same names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fakecloud.kv import commands
from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.harness import check_each
from tests.kv.table import FUNCTION_MODULES, module_of_group
from tests.notations import complete

HERE = Path(__file__).parents[1] / "commands"
REAL = HERE.with_name("scenarios")
VENDOR = REAL / "vendor"


@pytest.mark.completeness
def test_each_command_has_a_function_or_subcommands() -> None:
    complete(
        Path(commands.__file__).parent,
        (
            f'{module_of_group(spec.group)}.py: @command("{name}")\n'
            f"def {re.sub(r'[.|-]', '_', spec.full_name)}(session: Session, args: Args) -> Reply:"
            for name, spec in COMMANDS.items()
            if not (spec.function or spec.subcommands)
        ),
    )


@pytest.mark.completeness
def test_a_module_of_commands_has_its_module_of_cases() -> None:
    def check(module: str) -> None:
        *folders, name = module.split("/")
        files = [
            HERE.joinpath(*folders, f"test_{name}.py"),
            REAL / f"{'-'.join([*folders, name])}.txt",
            VENDOR.joinpath(*folders, f"{name}.txt"),
        ]
        assert any(file.is_file() for file in files)

    check_each(check, zip(sorted(set(FUNCTION_MODULES.values()))))


def test_cases_are_about_a_module_of_commands() -> None:
    def check(path: Path) -> None:
        *folders, name = path.relative_to(HERE if path.suffix == ".py" else VENDOR).parts
        module = Path(re.sub(r"^test_|-\w+(?=\.)", "", name)).with_suffix(".py")
        assert Path(commands.__path__[0], *folders, module).is_file()

    check_each(check, zip([*sorted(HERE.rglob("test_*.py")), *sorted(VENDOR.rglob("*.txt"))]))
