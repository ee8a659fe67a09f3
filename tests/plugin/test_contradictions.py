"""Contradictory settings from any source are rejected, and never partly applied."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud import Cloud, ContractError

from ..harness import Run


@pytest.mark.parametrize("scope", ["function", "session"])
@pytest.mark.parametrize("mode", ["True", "'autojump'"])
def test_process_time_and_a_running_clock(
    run: Run, pytester: pytest.Pytester, scope: str, mode: str
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    fixture = "fakecloud_settings" if scope == "function" else "fakecloud_session_settings"
    result = run(
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def {fixture}():
            return {{"process_time": {mode}, "clock": "running"}}

        def test_it(kv_server):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fakecloud: clock='running' is not possible: *"])


@pytest.mark.parametrize(
    "settings",
    [{"process_time": True}, {"clock": "frozen"}, {"now": "2026-01-01T00:00:00Z"}],
    ids=lambda items: next(iter(items)),
)
@pytest.mark.parametrize(
    ("fixture", "engine"), [("kv_server", "redis://127.0.0.1:1"), ("broker", "kafka://127.0.0.1:1")]
)
def test_a_real_server_and_a_clock_that_stands(
    settings: dict[str, Any], fixture: str, engine: str
) -> None:
    with Cloud(**settings) as cloud, pytest.raises(ContractError, match="uses real time"):
        getattr(cloud, fixture)(engine=engine)
