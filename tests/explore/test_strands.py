"""The states of a strand, and the roles of threads: the map has those of the code."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import get_args

import pytest

from pytest_fakecloud.core.errors import Crash
from pytest_fakecloud.explore.simulation import current_thread
from pytest_fakecloud.explore.simulation.current_thread import UNEXPLORED, Origin, Role
from pytest_fakecloud.explore.simulation.rest import Waiting
from pytest_fakecloud.explore.simulation.strand import Strand

from ..docs.blocks import ROOT

_ROW = re.compile(r"\| `(\w+)` \| ([a-z, ]+) \| (\w+) \|")


def _moves_of_code() -> dict[str, tuple[list[str], str]]:
    """Return the states before and after each method that changes the state."""
    moves = {}
    [of_strand] = ast.parse(textwrap.dedent(inspect.getsource(Strand))).body
    methods = [node for node in ast.walk(of_strand) if isinstance(node, ast.FunctionDef)]
    for method in methods:
        for call in ast.walk(method):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "self._become":
                state, *before = map(ast.literal_eval, call.args)
                moves[method.name] = before, state
    return moves


def test_the_map_has_all_moves_between_states() -> None:
    page = (ROOT / "docs/contributing/map.md").read_text(encoding="utf-8")
    _, section = page.split("### The states of a strand\n")
    section, *_ = section.split("\n## ")
    rows = {method: (before.split(", "), state) for method, before, state in _ROW.findall(section)}
    assert rows.pop("end") == (["all"], "ended")
    assert rows == _moves_of_code()


def test_the_map_has_a_row_for_each_role_and_origin_of_a_thread() -> None:
    page = (ROOT / "docs/contributing/map.md").read_text(encoding="utf-8")
    _, _, section = page.partition("### Whose thread is this?\n")
    table, _, _ = section.partition("\n### ")
    cells = " ".join(re.findall(r"(?m)^\| (`.+?) \|", table))
    roles = {value.name for value in vars(current_thread).values() if isinstance(value, Role)}
    names = {*roles, *get_args(Origin)} - {UNEXPLORED.name, ""}
    assert names <= set(re.findall("`([^`]+)`", cells))


def test_a_strand_that_has_ended_does_nothing_more() -> None:
    strand = Strand("ann", "client")
    strand.begin()
    strand.end()
    with pytest.raises(Crash):
        strand.park("switch", 1)
    assert strand.state == "ended"


def test_a_move_from_another_state_is_a_bug() -> None:
    strand = Strand("ann", "client")
    with pytest.raises(RuntimeError, match=r"^ann was new: please report this as a bug$"):
        strand.wait(Waiting(), 1)
