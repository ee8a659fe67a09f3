"""An interception library that stands between a test and its fakes is named, with its remedy."""

from __future__ import annotations

import importlib.util

import pytest

from ..harness import QUIET, Run


def quiet_but(*names: str) -> list[str]:
    return [option for option in QUIET if option.removeprefix("-pno:") not in names]


def needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


CASES = [
    pytest.param(
        """
        import requests
        import responses

        @responses.activate
        def test_it(kv_server):
            requests.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
        """,
        "responses kept a request from kv_server: let it through with "
        "responses.add_passthru(kv_server.url)",
        marks=needs("responses"),
        id="responses",
    ),
    pytest.param(
        """
        import httpx

        def test_it(kv_server, respx_mock):
            httpx.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
        """,
        'respx kept a request from kv_server: let it through with respx.route(host="127.0.0.1")'
        ".pass_through()",
        marks=needs("respx"),
        id="respx",
    ),
    pytest.param(
        """
        import httpx

        def test_it(kv_server, httpx_mock):
            httpx.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
        """,
        "pytest-httpx kept a request from kv_server: let it through with @pytest.mark.httpx_mock("
        'should_mock=lambda request: request.url.host != "127.0.0.1")',
        marks=needs("pytest_httpx"),
        id="pytest_httpx",
    ),
    pytest.param(
        """
        import requests
        import requests_mock

        def test_it(kv_server):
            with requests_mock.Mocker():
                requests.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
        """,
        "requests-mock kept a request from kv_server: let it through with "
        "requests_mock.Mocker(real_http=True)",
        marks=needs("requests_mock"),
        id="requests_mock",
    ),
    pytest.param(
        """
        import requests
        import vcr

        def test_it(kv_server, tmp_path):
            with vcr.use_cassette(str(tmp_path / "tape.yaml"), record_mode="none"):
                requests.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
        """,
        "VCR.py kept a request from kv_server: let it through with vcr.VCR(ignore_localhost=True)",
        marks=needs("vcr"),
        id="vcr",
    ),
]


@pytest.mark.parametrize(("source", "hint"), CASES)
def test_the_library_is_named(run: Run, source: str, hint: str) -> None:
    result = run(source, *quiet_but("respx", "pytest_httpx"), quiet=False)
    assert result.parseoutcomes()["failed"] == 1
    assert hint in result.stdout.lines


@needs("pytest_socket")
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        (
            "--disable-socket",
            "*pytest-socket kept the test from its fakes: allow loopback with @pyt*",
        ),
        (
            "--allow-hosts=10.0.0.1",
            "*pytest-socket kept the test from its fakes: allow loopback with --allow-hosts=127*",
        ),
    ],
)
def test_pytest_socket_is_named(
    run: Run, pytester: pytest.Pytester, option: str, hint: str
) -> None:
    pytester.makepyfile(
        """
        import httpx

        def test_it(kv_server):
            httpx.get(kv_server.url)
        """
    )
    result = pytester.runpytest_subprocess(*quiet_but("socket"), option)
    result.stdout.fnmatch_lines([hint])


def test_a_refusal_elsewhere_is_no_hint(run: Run) -> None:
    result = run(
        """
        import requests
        import responses

        @responses.activate
        def test_it(kv_server):
            kv_server.client().get("k")
            requests.get("https://elsewhere.test/")
        """
    )
    result.assert_outcomes(failed=1)
    assert "kept a request from" not in result.stdout.str()
    assert "may have kept it away" not in result.stdout.str()


def test_a_refusal_the_application_swallowed_is_suspected(run: Run) -> None:
    result = run(
        """
        import requests
        import responses

        def application(kv):
            try:
                requests.get(f"{kv.url}/set/k/v", headers=kv.headers)
            except requests.RequestException:
                pass

        @responses.activate
        def test_it(kv_server):
            application(kv_server)
            assert kv_server.value("k") == "v"
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "no request came to kv_server, and the test uses responses, which may have kept it away: *"
        ]
    )


def test_a_test_without_such_a_library_suspects_none(run: Run) -> None:
    result = run("def test_it(kv_server):\n            assert kv_server.value('k') == 'v'\n")
    result.assert_outcomes(failed=1)
    assert "may have kept it away" not in result.stdout.str()
