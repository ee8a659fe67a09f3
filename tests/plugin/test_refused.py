"""Clients that only receive 401 answers cause a warning, unless the test allows it."""

from __future__ import annotations

import pytest

from pytest_fakecloud import Cloud, ContractError

from ..harness import Run

TEST = """
    import requests

    def test_it(fakecloud, kv_server):
        {allow}
        assert requests.get(f"{{kv_server.url}}/get/k", timeout=5).status_code == 401
"""


@pytest.mark.parametrize(
    "allow",
    ["fakecloud.allow('refused')", "fakecloud.allow('refused', path='/get/*', method='GET')",
     "fakecloud.allow('refused', handle='kv_server')"],
)  # fmt: skip
def test_what_is_meant_is_not_warned_of(run: Run, allow: str) -> None:
    result = run(TEST.format(allow=allow))
    result.assert_outcomes(passed=1, warnings=0)


@pytest.mark.parametrize("allow", ["pass", "fakecloud.allow('refused', path='/set/*')"])
def test_what_is_not_meant_is_warned_of_and_the_warning_says_what_to_do(
    run: Run, allow: str
) -> None:
    result = run(TEST.format(allow=allow))
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*kv_server: answered 401 to 1 of 1 call*fakecloud.allow('refused', path=...)*"]
    )


def test_it_is_allowed_for_one_test_only(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    result = run(TEST.format(allow="fakecloud.allow('refused')") + TEST.format(allow="pass").replace(
        "test_it", "test_next"
    ))  # fmt: skip
    result.assert_outcomes(passed=2, warnings=1)


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
