"""Where a command is: one module for its functions, one of the same place for its cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fakecloud.kv import commands
from pytest_fakecloud.kv.table.registry import specs

HERE = Path(__file__).parents[1] / "commands"
MODULES = sorted(
    {spec.function.__module__.partition(".kv.commands.")[2] for spec in specs() if spec.function}
)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_commands_has_its_module_of_cases(module: str) -> None:
    *folders, name = module.split(".")
    assert HERE.joinpath(*folders, f"test_{name}.py").is_file()


@pytest.mark.parametrize("path", sorted(HERE.rglob("test_*.py")), ids=lambda path: path.stem)
def test_cases_are_about_a_module_of_commands(path: Path) -> None:
    *folders, name = path.relative_to(HERE).parts
    assert Path(commands.__path__[0], *folders, name.removeprefix("test_")).is_file()
