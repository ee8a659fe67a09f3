"""Clients that only receive 401 answers cause a warning, unless the test allows it."""

from __future__ import annotations

import textwrap

import pytest

from pytest_fakecloud import Cloud, ContractError

from ..harness import Run

TEST = """
    import requests

    def test_it(fakecloud, kv_server):
        {allow}
        assert requests.get(f"{{kv_server.url}}/get/k", timeout=5).status_code == 401
"""


def of(*allowed: str) -> str:
    """Return a file with a test for each statement."""
    return "".join(
        TEST.format(allow=allow).replace("test_it", f"test_{number}")
        for number, allow in enumerate(allowed)
    )


def test_what_is_meant_is_not_warned_of(run: Run) -> None:
    result = run(
        of(
            "fakecloud.allow('refused')",
            "fakecloud.allow('refused', path='/get/*', method='GET')",
            "fakecloud.allow('refused', fake='kv_server')",
        )
    )
    result.assert_outcomes(passed=3, warnings=0)


def test_what_is_not_meant_is_warned_of_and_the_warning_says_what_to_do(run: Run) -> None:
    result = run(of("pass", "fakecloud.allow('refused', path='/set/*')"))
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*_the_warning_says_what_to_do.py:3: FakecloudWarning: kv_server: answered 401 to 1 of 1 "
            "call: no credentials were sent (if intended: "
            'fakecloud.allow("refused", fake="kv_server"))*'
        ]
    )


@pytest.mark.parametrize(
    ("filters", "outcomes"),
    [
        (["-Werror::pytest_fakecloud.FakecloudWarning"], {"failed": 1}),
        (["-Werror"], {"failed": 1}),
        (["-Wignore::pytest_fakecloud.FakecloudWarning"], {"passed": 1}),
        (["-Wignore:kv_server"], {"passed": 1}),
        (["-o", "filterwarnings=error::pytest_fakecloud.FakecloudWarning"], {"failed": 1}),
        (["-o", "filterwarnings=ignore:.*answered 401"], {"passed": 1}),
    ],
    ids=str,
)
def test_warning_filters_apply(run: Run, filters: list[str], outcomes: dict[str, int]) -> None:
    result = run(of("pass"), *filters)
    result.assert_outcomes(**outcomes, warnings=0)


def test_the_filters_of_a_test_apply(run: Run) -> None:
    marked = 'import pytest\npytestmark = pytest.mark.filterwarnings("{}")\n'
    text = TEST.format(allow="pass")
    for action, outcomes in (("error", {"failed": 1}), ("ignore", {"passed": 1})):
        mark = marked.format(f"{action}::pytest_fakecloud.FakecloudWarning")
        run(f"{mark}{textwrap.dedent(text)}").assert_outcomes(**outcomes, warnings=0)


def test_it_is_allowed_for_one_test_only(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    run(of("fakecloud.allow('refused')", "pass")).assert_outcomes(passed=2, warnings=1)


def test_it_is_no_kind_that_fails_a_test(run: Run) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.fakecloud(strict=["refused"])
        def test_it(kv_server):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    with Cloud() as cloud, pytest.raises(ContractError, match="did you mean 'refused'"):
        cloud.allow("refuse")
