"""Strings as numbers: INCR, INCRBYFLOAT and others."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run


class TestBeyondADouble:
    """INCRBYFLOAT and HINCRBYFLOAT compute with 80 bits, as far as these reach."""

    @pytest.mark.parametrize("command", ["INCRBYFLOAT k", "HINCRBYFLOAT k f"])
    def test_digits_and_their_end(self, run: Run, command: str) -> None:
        assert run(f"{command} 1e4931") == run(f"{command} 0")
        found = run(f"{command} 1e4931")
        assert (len(found), found[:18]) == (4932, b"200000000000000000")
        text = "ERR increment would produce NaN or Infinity"
        for _ in range(8):
            run(f"{command} 1e4931")
        assert run.error(f"{command} 1e4932") == text
        assert run(f"{command} 0").startswith(b"99999999")
        not_float = "ERR value is not a valid float"
        assert run.error(f"{command} 1e4933") == not_float
        assert run.error(f"{command} -1.2e4932") == not_float
        assert len(run(f"{command} -1e4932")) < 4925
