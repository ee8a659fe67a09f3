"""A helper that runs scripts."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import to_json
from tests.kv.conftest import Run


class Lua:
    def __init__(self, run: Run) -> None:
        self.run = run

    def __call__(self, script: str | bytes, *args: str | bytes) -> Any:
        return to_json(self.run("EVAL", script, 0, *args))

    def encode(self, expression: str, *args: str | bytes) -> str:
        text: str = self(f"return cjson.encode({expression})", *args)
        return text

    def error(self, script: str | bytes, *args: str | bytes) -> str:
        """Return the text of an error, without the digest and the line at its end."""
        with pytest.raises(CommandError) as caught:
            self.run("EVAL", script, 0, *args)
        return str(caught.value).split(" script: ")[0].removeprefix("ERR ")


@pytest.fixture
def dialect() -> str:
    """Return the stock dialect, whose texts can be compared with real servers."""
    return "redis"


@pytest.fixture
def lua(run: Run) -> Lua:
    return Lua(run)
