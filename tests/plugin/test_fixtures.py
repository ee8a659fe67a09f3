"""The fixtures: their fakes, a fresh state for each test, and their end."""

from __future__ import annotations

import os
import sys

import pytest

from pytest_fakecloud import plugin
from pytest_fakecloud.cloud.services import SERVICES, services_by_word
from pytest_fakecloud.pytest_run.ini import INI_SETTINGS
from pytest_fakecloud.pytest_run.options import TEST_SETTINGS

from ..harness import QUIET, Run, apart


def test_fixtures_are_listed_with_their_first_sentence(run: Run) -> None:
    result = run("", "--fixtures")
    for line in (
        "kv_server -- *A key-value server (Redis commands over REST and the Redis protocol)*",
        "vector_index -- *A vector index, empty for each test.*",
        "broker -- *A message broker (partitioned log with consumer groups), empty for each test.*",
        "queue -- *An HTTP message queue with deliveries, retries and callbacks*",
        "callback_capture -- *A receiver for the queue's callbacks and failure callbacks.*",
        "destination -- *A server at ``.url`` that receives deliveries*",
    ):
        name, _, text = line.partition(" -- ")
        result.stdout.fnmatch_lines([f"{name} *", f"    {text.strip('*')}*"], consecutive=True)


def test_a_test_without_fakes_finds_the_process_as_it_was(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    run(
        """
        import os
        import httpx
        import pytest
        from httpx._transports import default

        def state():
            return (
                os.environ.get("NO_PROXY"),
                default.create_ssl_context,
                httpx.HTTPTransport.handle_request,
            )

        untouched = state()

        @pytest.mark.fakecloud(transport="inprocess")
        def test_with(kv_server):
            assert [a == b for a, b in zip(state(), untouched)] == [False] * 3

        def values():
            return [os.environ.get(name) for name in ("NO_PROXY", "no_proxy")]

        def test_another(kv_server, monkeypatch):
            assert values() == ["127.0.0.1"] * 2
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.setenv(name, "elsewhere.test")

        def test_what_a_test_changed_is_set_again(kv_server):
            assert values() == ["127.0.0.1"] * 2
            os.environ["NO_PROXY"] = os.environ["no_proxy"] = "internal.test"

        def test_what_a_test_wants_is_kept(kv_server):
            assert values() == ["internal.test,127.0.0.1"] * 2
            del os.environ["NO_PROXY"], os.environ["no_proxy"]

        def test_what_a_test_removed_is_set_again(kv_server):
            assert values() == ["127.0.0.1"] * 2

        def test_without():
            assert state() == untouched

        def test_with_again(kv_server):
            assert os.environ["NO_PROXY"] == "127.0.0.1"
        """
    ).assert_outcomes(passed=7)
    assert "NO_PROXY" not in os.environ


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (
            "brokr={}",
            "*'brokr' is not a setting of fakecloud; did you mean 'broker'? Known settings: now, *",
        ),
        ("env='no'", "fakecloud: env='no' must be True or False, or None"),
        ("broker=3", "*the setting broker must be a dict of that service's settings, got 3*"),
        ("3", "*the fakecloud marker takes keywords only, got (3,)*"),
        (
            "strict='unruted'",
            "*is not a kind of violation; did you mean 'unrouted'? Known kinds: True, *",
        ),
        (
            "broker={'topix': {}}",
            "*'topix' is not a setting of broker; did you mean 'topics'? Known settings: *topics*",
        ),
        ("clock='stopped'", "*clock='stopped' must be 'running' or 'frozen', or None*"),
        ("now='yesterday'", "*'yesterday' is not a time*"),
        ("transport='pigeon'", "*transport='pigeon' must be 'socket' or 'inprocess'*"),
    ],
)
def test_wrong_settings_are_an_error_of_their_test(run: Run, marker: str, text: str) -> None:
    result = run(
        f"""
        import pytest

        @pytest.mark.fakecloud({marker})
        def test_wrong(broker):
            pass

        def test_right(broker):
            pass
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([text])


def test_env_sets_the_clients_variables_and_gives_them_back(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTASH_VECTOR_REST_URL", "https://real.example")
    run(
        """
        import os
        import pytest

        def test_set(fakecloud_env, vector_index):
            assert os.environ["UPSTASH_VECTOR_REST_URL"] == vector_index.url
            assert os.environ["UPSTASH_VECTOR_REST_TOKEN"] == vector_index.token
            assert fakecloud_env.vector_index(name="second").url != vector_index.url
            assert os.environ["UPSTASH_VECTOR_REST_URL"] == vector_index.url

        def test_started_before(vector_index, fakecloud_env):
            assert os.environ["UPSTASH_VECTOR_REST_URL"] == vector_index.url

        def test_given_back(vector_index):
            assert os.environ["UPSTASH_VECTOR_REST_URL"] == "https://real.example"

        @pytest.mark.fakecloud(env=True)
        def test_setting(vector_index):
            assert os.environ["UPSTASH_VECTOR_REST_URL"] == vector_index.url
        """
    ).assert_outcomes(passed=4)


@pytest.mark.slow
def test_without_the_plugin_nothing_is_left(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(kv_server): pass")
    result = apart(pytester, "-p", "no:fakecloud")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'kv_server' not found*"])


def test_the_entry_point_loads_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_there(broker): assert broker.url")
    apart(pytester).assert_outcomes(passed=1)


LOADED = """
    import atexit, sys

    OURS = "pytest_fakecloud"

    def tell():
        print("loaded", *sorted(name for name in sys.modules if name.startswith(OURS)))

    atexit.register(tell)
"""


def check_loaded(result: pytest.RunResult) -> None:
    """Check that a pytest run with this conftest has imported only what the run and the check of its
    options need.
    """
    (line,) = [line for line in result.outlines if line.split()[:1] == ["loaded"]]
    names = [name.removeprefix("pytest_fakecloud") for name in line.split()[1:]]
    core = [".core", ".core.errors", ".core.exits", ".core.switches"]
    run = [".pytest_run", ".pytest_run.ini", ".pytest_run.run", ".pytest_run.wide_fixtures"]
    assert names == ["", *core, ".plugin", *run]


@pytest.mark.parametrize(
    "options",
    [
        (),
        *(
            pytest.param((option,), marks=pytest.mark.slow)
            for option in ("--collect-only", "--fixtures", "--markers")
        ),
    ],
)
def test_a_run_without_fakes_loads_no_fake(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makeconftest(LOADED)
    pytester.makeini("[pytest]\nfakecloud_env = false")
    pytester.makepyfile("def test_nothing(tmp_path, request): pass")
    result = apart(pytester, *options)
    assert result.ret == 0
    check_loaded(result)


@pytest.mark.slow
def test_collecting_tests_with_fakes_starts_none(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LOADED)
    pytester.makepyfile("def test_one(kv_server): pass")
    check_loaded(apart(pytester, "--collect-only"))


@pytest.mark.slow
def test_a_program_may_import_the_package_before_it_runs_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_kv(kv_server): assert kv_server.url")
    program = (
        "import sys, pytest, pytest_fakecloud; sys.exit(pytest.main(['-Werror', *sys.argv[1:]]))"
    )
    pytester.run(sys.executable, "-c", program, *QUIET).assert_outcomes(passed=1)


def test_the_plugin_lists_its_fixtures() -> None:
    fixture = type(plugin.fakecloud)
    assert {name for name, value in vars(plugin).items() if isinstance(value, fixture)} == (
        plugin._FIXTURES
    )


def test_the_texts_of_the_plugin_name_every_service() -> None:
    for service in SERVICES.values():
        assert f"{service.fixture}={{...}}" in plugin.MARKER
        assert {service.fixture, f"fakecloud_{service.word}"} - {
            "fakecloud_None"
        } <= plugin._FIXTURES
    assert plugin.MARKER.startswith(
        f"fakecloud({', '.join(f'{name}=' for name in TEST_SETTINGS)}, "
    )
    early = [service.fixture for service in services_by_word().values()]
    assert f"'{' '.join(early)}'" in INI_SETTINGS["fakecloud_early"].help


OF_A_LATE_FRAMEWORK = {
    "a fixture": """
        @pytest.fixture
        def client(kv_server):
            return client_of(kv_server)

        def test_it(client):
            assert client.get("/stock").text == "8"
        """,
    "the test": """
        @pytest.fixture
        def clients(kv_server):
            clients = []
            yield clients
            assert clients[0].get("/stock").text == "8"

        def test_it(clients, kv_server):
            clients.append(client_of(kv_server))
        """,
}


@pytest.mark.parametrize("importing", OF_A_LATE_FRAMEWORK)
def test_requests_to_a_framework_that_is_imported_late_are_reported(
    importing: str, pytester: pytest.Pytester
) -> None:
    """In its own process, in which nothing has imported the framework yet."""
    pytest.importorskip("flask")
    pytester.makepyfile(
        """
        import sys
        import urllib.request
        import pytest

        def client_of(kv):
            assert "flask" not in sys.modules
            import flask

            app = flask.Flask("shop")

            @app.get("/stock")
            def stock():
                urllib.request.urlopen(
                    urllib.request.Request(kv.url + "/get/stock", headers=kv.headers)
                )
                return "7"

            return app.test_client()
        """
        + OF_A_LATE_FRAMEWORK[importing]
    )
    apart(pytester).stdout.fnmatch_lines(
        [
            "E * '7' == '8'",
            "* --> application GET /stock (Flask) <-- 200",
            "* --> kv_server GET stock <-- null",
        ]
    )
