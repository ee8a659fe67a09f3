"""Fakes that last for the whole run: the same address, a fresh baseline for each test."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest
import requests

from ..harness import QUIET, Run, apart, quiet_but


@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_a_scope_keeps_address_and_credentials_and_nothing_else(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    source = """
        import socket
        import time
        import pytest
        import requests

        seen = set()
        opened = []

        def ask(broker, path="/topics"):
            requests.get(broker.url + path, auth=(broker.username, broker.password))

        class TestAll:
            @pytest.mark.parametrize("turn", range(3))
            def test_again(self, broker, fakecloud, turn):
                seen.add((broker.url, broker.username, broker.password))
                assert len(seen) == 1
                assert broker.topics() == []
                assert broker.journal.calls() == []
                assert fakecloud.clock.mode == "running"
                assert abs(fakecloud.clock.now().timestamp() - time.time()) < 5
                assert not broker.faults.unused()
                broker.create_topic("orders")
                ask(broker)
                with broker.faults.respond(503):
                    ask(broker)
                fakecloud.clock.advance("24h")
                fakecloud.clock.freeze()

            def test_left_a_violation(self, broker):
                ask(broker, "/nope")

            def test_has_no_violation(self, broker):
                pass

            def test_opens_connections(self, broker):
                host, port = broker.url.removeprefix("http://").split(":")
                request = b"GET /topics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
                begun = request.replace(b"x", b"x\\r\\nContent-Length: 9")
                for rest in (b"", begun):
                    sock = socket.create_connection((host, int(port)), timeout=5)
                    sock.sendall(request + rest)
                    assert sock.recv(65536)
                    opened.append(sock)

            def test_an_idle_connection_stays_and_a_half_sent_request_ends(self, broker):
                idle, busy = opened
                assert broker.journal.calls() == []
                idle.sendall(b"GET /topics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
                assert idle.recv(65536)
                try:
                    assert busy.recv(65536) == b""
                except ConnectionResetError:
                    pass
                for sock in opened:
                    sock.close()
                assert len(broker.journal.calls()) == 1

            @pytest.fixture
            def straggler(self, broker):
                ask(broker)

            def test_a_call_before_its_own_code_is_marked(self, broker, straggler):
                ask(broker)
                first, second = broker.journal.calls()
                assert "maybe by an earlier test" in first.note
                assert second.note == ""
    """
    run(source).assert_outcomes(passed=7, failed=1)


@pytest.mark.parametrize(
    ("scope", "cloud"),
    [
        ("function", "fakecloud_session"),
        ("class", "fakecloud"),
        ("module", "fakecloud"),
        ("session", "fakecloud"),
    ],
)
def test_fakes_that_a_test_starts_end_in_its_own_teardown(
    scope: str, cloud: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    result = run(
        f"""
        from functools import partial
        import pytest
        import requests

        ENDED = []

        def end(name):
            print(f"end of {{name}}")
            ENDED.append(name)
            raise RuntimeError(f"no end of {{name}}")

        @pytest.fixture
        def own({cloud}):
            own = [{cloud}.kv_server(name=name) for name in ("first", "second")]
            for fake in own:
                fake.on_close(partial(end, fake.name))
            yield own
            assert not own[0].closed
            ENDED.append("fixture")

        class TestAll:
            def test_starts_fakes(self, own):
                requests.get(own[0].url + "/get/k", headers=own[0].headers)

            def test_next(self, {cloud}):
                assert ENDED == ["fixture", "second", "first"]
                assert {cloud}.fakes() == []
                assert {cloud}.journal.calls() == []
        """
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of TestAll.test_starts_fakes*",
            "*RuntimeError: no end of second",
            "*- fakecloud -*",
            "* --> first GET k *",
            "*- Captured stdout teardown -*",
            "end of second",
            "end of first",
        ]
    )


def test_the_report_of_a_failed_teardown_has_the_fakes_that_the_test_has_started(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = module")
    result = run(
        """
        import pytest

        @pytest.fixture
        def failing(fakecloud):
            yield
            assert 0, "own reason"

        @pytest.mark.filterwarnings("ignore:.*never delivered")
        def test_starts_fakes(failing, fakecloud):
            queue = fakecloud.queue()
            queue.publish("https://shop.example.com")
            queue.on_close(lambda: 1 / 0)

        def test_next(fakecloud):
            assert fakecloud.fakes() == []
        """
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_starts_fakes*",
            "*AssertionError: own reason",
            "Unfinished: *shop.example.com*",
            "*- fakecloud teardown -*",
            "the fakes that the test has started could not all be closed: ZeroDivisionError: *",
        ]
    )


SHARED = {
    "test_1": """
        import pytest
        from state import ENDED, FAKES, note

        {mark}

        @pytest.fixture(scope="module")
        def app(kv_server):
            kv_server.load({"price": "40"})
            kv_server.set_baseline()
            kv_server.on_close(lambda: ENDED.append(kv_server.url))
            return kv_server

        def test_changes(app, fakecloud):
            note(app)
            assert fakecloud.clock.mode == "frozen"
            fakecloud.clock.advance("1h")
            app.client().set("price", "45")

        class TestMore:
            def test_starts_over(self, kv_server, fakecloud):
                note(kv_server)
                assert fakecloud.clock.now().isoformat() == "2026-01-01T00:00:00+00:00"
                assert kv_server.value("price") == "40"
                assert ENDED == []

        def test_without_fakes():
            assert ENDED == []
    """,
    "test_2": """
        from state import ENDED, FAKES, note

        def test_has_its_own(kv_server, fakecloud):
            note(kv_server)
            assert fakecloud.clock.mode == "running"
            assert ENDED == [FAKES[0][0]]
            assert kv_server.keys() == []

        def test_the_modules_had_two_fakes(kv_server):
            note(kv_server)
            assert FAKES[0] == FAKES[1] != FAKES[2] == FAKES[3]
    """,
}


def test_a_modules_fakes_last_for_the_module(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = module")
    pytester.makepyfile(
        state="ENDED, FAKES = [], []\ndef note(kv): FAKES.append((kv.url, kv.token))\n"
    )
    mark = "pytestmark = pytest.mark.fakecloud(now='2026-01-01T00:00:00Z')"
    pytester.syspathinsert()
    pytester.makepyfile(
        **{name: textwrap.dedent(text).replace("{mark}", mark) for name, text in SHARED.items()}
    )
    pytester.runpytest_inprocess(*QUIET).assert_outcomes(passed=5)


@pytest.mark.parametrize("scope", ["class", "module", "session"])
@pytest.mark.parametrize("way", ["marker", "ini"])
def test_variables_are_those_of_the_tests_with_fakes(
    scope: str, way: str, run: Run, pytester: pytest.Pytester
) -> None:
    ini = "\nfakecloud_env = true" if way == "ini" else ""
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}{ini}")
    marker = "@pytest.mark.fakecloud(env=True)" if way == "marker" else ""
    run(
        f"""
        import os
        import pytest

        @pytest.fixture
        def url():
            return os.environ["QSTASH_URL"]

        class TestAll:
            {marker}
            @pytest.mark.parametrize("turn", [1, 2])
            def test_with(self, url, queue, turn, monkeypatch):
                assert os.environ["QSTASH_URL"] == url == queue.url
                monkeypatch.setenv("QSTASH_URL", "https://other.test")

            def test_without(self):
                assert "QSTASH_URL" not in os.environ

            {marker}
            def test_again(self, queue):
                assert os.environ["QSTASH_URL"] == queue.url
        """
    ).assert_outcomes(passed=4)
    assert "QSTASH_URL" not in os.environ


@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_a_fake_that_is_requested_at_run_time_is_the_tests(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}\nfakecloud_env = true")
    result = run(
        '''
        """
        >>> kv = getfixture("kv_server")
        >>> kv.url == os.environ["UPSTASH_REDIS_REST_URL"]
        True
        """
        import os
        import pytest

        __test__ = {"again": __doc__}

        @pytest.fixture
        def kv(request):
            return request.getfixturevalue("kv_server")

        class TestAll:
            @pytest.mark.parametrize("turn", [1, 2])
            def test_with(self, kv, turn):
                assert os.environ["UPSTASH_REDIS_REST_URL"] == kv.url

            @pytest.mark.fakecloud(strict=False)
            def test_lax(self, kv):
                kv.faults.drop(command="SET")

            @pytest.mark.fakecloud(strict=False)
            def test_lax_in_its_body(self, request):
                request.getfixturevalue("kv_server").faults.drop(command="SET")

            def test_without(self):
                assert "UPSTASH_REDIS_REST_URL" not in os.environ

            def test_strict(self, request):
                request.getfixturevalue("kv_server").faults.drop(command="SET")
        ''',
        *quiet_but("doctest"),
        "--doctest-modules",
        quiet=False,
    )
    result.assert_outcomes(passed=7, failed=1)
    result.stdout.fnmatch_lines(["*unused_fault? kv_server: *"])


@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_a_rotation_lasts_for_its_test(scope: str, run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    run(
        """
        import pytest
        import requests

        FAKES = "kv_server", "vector_index", "broker", "queue", "callback_capture"

        def rotate(fake):
            fake.rotate_token()
            if fake.fixture == "kv_server":
                fake.rotate_password()
            if fake.fixture == "queue":
                fake.rotate_keys()
                requests.post(fake.url + "/v2/keys/rotate", headers=fake.headers)

        def secrets(fake):
            extra = {"kv_server": "database_url", "queue": "env"}.get(fake.fixture, "url")
            return fake.headers, getattr(fake, "read_only_token", None), getattr(fake, extra)

        seen = {}

        @pytest.mark.parametrize("turn", range(2))
        @pytest.mark.parametrize("name", FAKES)
        class TestAll:
            def test_it(self, fakecloud, request, name, turn):
                fake = request.getfixturevalue(name)
                before = secrets(fake)
                assert seen.setdefault((fakecloud, name), before) == before
                rotate(fake)
                assert secrets(fake) != before
        """
    ).assert_outcomes(passed=10)


@pytest.mark.parametrize("scope", ["module", "session"])
def test_a_rotation_by_a_wider_fixture_lasts(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    run(
        f"""
        import pytest

        @pytest.fixture(scope={scope!r})
        def rotated(kv_server, queue):
            return kv_server.rotate_token(), queue.rotate_keys()

        @pytest.mark.parametrize("turn", range(3))
        def test_it(rotated, kv_server, queue, turn):
            assert kv_server.token == rotated[0]
            assert queue.env["QSTASH_CURRENT_SIGNING_KEY"] == rotated[1][0]
            kv_server.rotate_token()
            queue.rotate_keys()
        """
    ).assert_outcomes(passed=3)


@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_interceptions_and_limits_of_a_test_end_with_it(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    run(
        f"""
        import pytest
        import requests

        from pytest_fakecloud.process.inprocess import origins

        def limits(cloud, fake):
            return fake.journal.keep, cloud.journal.keep, cloud.journal.keep_bytes

        def intercepted():
            return {{str(key) for key in origins.detours}}

        seen = {{}}

        @pytest.fixture(scope={scope!r})
        def wide(kv_server, fakecloud):
            kv_server.intercept("https://wide.example.com")
            kv_server.journal.keep = 70
            fakecloud.journal.keep_bytes = 20_000

        class TestAll:
            @pytest.mark.parametrize("turn", range(3))
            def test_plain(self, kv_server, fakecloud, turn):
                before = limits(fakecloud, kv_server), intercepted()
                assert seen.setdefault("plain", before) == before
                kv_server.intercept("https://kv.example.com")
                url = "https://kv.example.com/get/a"
                assert requests.get(url, headers=kv_server.headers).json() == {{"result": None}}
                kv_server.journal.keep = fakecloud.journal.keep = 7
                fakecloud.journal.keep_bytes = 10_000

            @pytest.mark.parametrize("turn", range(3))
            def test_wide(self, fakecloud, kv_server, request, turn):
                kv_server.intercept("https://kv.example.com")
                fakecloud.journal.keep = 7
                request.getfixturevalue("wide")
                assert limits(fakecloud, kv_server) == (70, 7, 20_000)
                assert len(intercepted()) == 2

            def test_last(self, wide, fakecloud, kv_server):
                assert limits(fakecloud, kv_server) == (70, None, 20_000)
                assert len(intercepted()) == 1
        """
    ).assert_outcomes(passed=7)


def test_closed_fakes_of_the_session_are_freed(run: Run) -> None:
    run(
        """
        import gc
        import weakref
        import pytest

        servers = []

        @pytest.fixture
        def own(fakecloud_session):
            with fakecloud_session.kv_server() as server:
                servers.append(weakref.ref(server))
                yield server

        @pytest.mark.parametrize("turn", range(5))
        def test_it(own, turn):
            gc.collect()
            assert len([one for one in servers if one() is not None]) < 4
        """
    ).assert_outcomes(passed=5)


@pytest.mark.parametrize("scope", ["function", "class"])
def test_the_cloud_of_a_scope_is_freed_at_its_end(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    run(
        """
        import gc
        import weakref
        import pytest

        clouds = []

        @pytest.fixture(scope="module", autouse=True)
        def no_collection():
            gc.disable()
            yield
            gc.enable()

        def test_first(kv_server, fakecloud):
            clouds.append(weakref.ref(fakecloud))

        def test_second(kv_server):
            assert clouds[0]() is None
        """
    ).assert_outcomes(passed=2)


def test_a_session_fixture_that_is_requested_at_run_time_lasts(run: Run) -> None:
    run(
        """
        import httpx
        import pytest

        @pytest.fixture(scope="session")
        def shop(fakecloud_session):
            return fakecloud_session.kv_server(name="shop")

        @pytest.fixture
        def till(fakecloud_session):
            return fakecloud_session.kv_server(name="till")

        def test_0(fakecloud_session):
            pass

        def test_1(request, fakecloud_session):
            request.getfixturevalue("shop")
            request.getfixturevalue("till")
            fakecloud_session.kv_server(name="own")
            assert [fake.name for fake in fakecloud_session.fakes()] == ["shop", "till", "own"]

        def test_2(shop, fakecloud_session):
            assert shop.client().ping() == "PONG"
            assert [fake.name for fake in fakecloud_session.fakes()] == ["shop"]
        """
    ).assert_outcomes(passed=3)


@pytest.mark.slow
def test_workers_have_their_own_modules(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nfakecloud_scope = module")
    source = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_it(kv_server, n):\n"
    body = "    assert kv_server.client().incr('n') == 1\n"
    pytester.makepyfile(test_1=source + body, test_2=source + body)
    pytester.runpytest_inprocess(*quiet_but("xdist"), "-n2").assert_outcomes(passed=8)


@pytest.mark.slow
def test_early_fakes_are_there_before_the_conftest(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_early = vector broker")
    pytester.makeconftest(
        """
        import os

        URL = os.environ["UPSTASH_VECTOR_REST_URL"]
        """
    )
    pytester.makepyfile(
        """
        import os
        import pytest
        from conftest import URL

        @pytest.mark.parametrize("turn", range(2))
        def test_it(vector_index, broker, turn):
            assert vector_index.url == URL == os.environ["UPSTASH_VECTOR_REST_URL"]
            assert vector_index.clock is broker.clock
            assert vector_index.info()["vectorCount"] == 0 if hasattr(vector_index, "info") else True
        """
    )
    apart(pytester).assert_outcomes(passed=2)


APP = """
import os
import httpx

URL, TOKEN = os.environ["QSTASH_URL"], os.environ["QSTASH_TOKEN"]

def call(path):
    httpx.get(URL + path, headers={"Authorization": f"Bearer {TOKEN}"})
"""


@pytest.mark.slow
def test_early_fakes_that_a_test_does_not_name_are_strict_and_explained(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\nfakecloud_early = queue")
    pytester.makepyfile(app=APP)
    pytester.makepyfile(
        """
        import pytest
        from app import TOKEN, call

        def test_unrouted():
            call("/v9/x")

        def test_clean():
            call("/v2/keys")

        def test_none():
            pass

        @pytest.mark.fakecloud(strict=False)
        def test_allowed():
            call("/v9/x")

        def test_fails():
            call("/v2/queues?name=" + TOKEN)
            assert 0, "own reason"

        def test_fails_without():
            assert 0, "own reason"
        """
    )
    result = apart(pytester)
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        [
            "fakecloud: the test passed, but with 1 strict-mode violation",
            "?unrouted? queue got GET /v9/x: *",
            "*AssertionError: own reason",
            "* --> queue GET /v2/queues[?]name=[*][*][*]*",
        ]
    )
    assert result.stdout.str().count("- fakecloud -") == 2


@pytest.mark.slow
def test_the_first_fake_of_a_process_may_be_that_of_a_session_fixture(
    pytester: pytest.Pytester,
) -> None:
    """In a process that has used fakes before, more is loaded than in the one of a user."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def shop(fakecloud_session):
            return fakecloud_session.broker(name="shop")

        def test_left(shop):
            shop.faults.drop()
        """
    )
    result = apart(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unused_fault? shop: *"])


def test_fakes_of_session_fixtures_are_strict_and_explained_beside_the_tests_own(
    run: Run, pytester: pytest.Pytester
) -> None:
    result = run(
        """
        import httpx
        import pytest

        @pytest.fixture(scope="session")
        def shop(fakecloud_session):
            return fakecloud_session.broker(name="shop")

        def test_left(shop):
            shop.faults.drop()

        def test_both(shop, broker):
            shop.faults.drop()
            httpx.get(f"{broker.url}/nowhere", headers=broker.headers)

        def test_fails(shop, kv_server):
            httpx.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
            httpx.get(f"{shop.url}/topics", headers=shop.headers)
            assert 0

        def test_clean(shop, kv_server):
            httpx.get(f"{kv_server.url}/get/k", headers=kv_server.headers)
        """,
        "--fakecloud-report=pages",
        "--fakecloud-record=calls",
    )
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "fakecloud: the test passed, but with 1 strict-mode violation",
            "?unused_fault? shop: *",
            "fakecloud: the test passed, but with 2 strict-mode violations",
            "?unrouted? broker got GET /nowhere: *",
            "?unused_fault? shop: *",
            "* --> kv_server GET k *",
            "* --> shop GET /topics *",
        ]
    )
    assert len({path.stem for path in (pytester.path / "pages").glob("*.html")} - {"index"}) == 5

    assert len(list((pytester.path / "calls").iterdir())) == 6


def test_early_fakes_end_where_a_conftest_cannot_be_imported(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTASH_REDIS_REST_URL", "https://real.example")
    pytester.makeini("[pytest]\nfakecloud_early = kv_server")
    pytester.makeconftest(
        """
        import os, pathlib
        pathlib.Path("url").write_text(os.environ["UPSTASH_REDIS_REST_URL"])
        raise ValueError
        """
    )
    pytester.runpytest_inprocess(*QUIET)
    assert os.environ["UPSTASH_REDIS_REST_URL"] == "https://real.example"
    with pytest.raises(requests.ConnectionError):
        requests.get((pytester.path / "url").read_text(), timeout=5)


def test_early_names_are_checked(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_early = kvs")
    pytester.makepyfile("def test_it(): pass")
    result = apart(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*fakecloud_early: 'kvs' is not a service*vector_index*"])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("fakecloud_scope = package", "*package is unknown: pass function or class or module*"),
        ("fakecloud_clock = stopped", "* = stopped is unknown: pass running or frozen"),
        ("fakecloud_transport = pigeon", "* = pigeon is unknown: pass socket or inprocess"),
        ("fakecloud_env = maybe", "fakecloud_env = maybe is unknown: pass true or false"),
        (
            "fakecloud_share_tls_context = 5",
            "fakecloud_share_tls_context = 5 is unknown: pass true or false",
        ),
        ("fakecloud_strict = unrooted", "fakecloud_strict: 'unrooted' is not a kind*"),
        *(
            (
                f"fakecloud_early = kv_server\nfakecloud_scope = {scope}",
                f"fakecloud_early and fakecloud_scope = {scope} contradict each other*",
            )
            for scope in ("function", "class", "module")
        ),
    ],
)
def test_settings_of_the_run_are_checked(
    pytester: pytest.Pytester, setting: str, said: str
) -> None:
    pytester.makeini(f"[pytest]\n{setting}")
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_inprocess(*QUIET)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])


@pytest.mark.parametrize("option", ["--fakecloud-record", "--fakecloud-report"])
@pytest.mark.parametrize("folder", ["file", "file/deeper"])
def test_a_folder_that_can_be_none_is_said_at_once(
    pytester: pytest.Pytester, option: str, folder: str
) -> None:
    (pytester.path / "file").write_text("")
    pytester.makepyfile("def test_it(kv_server): assert 0")
    result = pytester.runpytest_inprocess(*QUIET, f"{option}={folder}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option}=*{folder} cannot be a folder: *file is a file"])


def test_a_folder_whose_name_no_system_takes_is_said_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kv_server): assert 0")
    result = pytester.runpytest_inprocess(*QUIET, f"--fakecloud-report={'x' * 5000}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fakecloud-report=*cannot be a folder: *too long*"])


@pytest.mark.parametrize("option", ["--fakecloud-record", "--fakecloud-report"])
def test_a_folder_that_takes_nothing_ends_no_run(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile(
        """
        import pathlib, httpx

        def test_it(kv_server):
            httpx.get(kv_server.url + "/ping", headers=kv_server.headers)
            pathlib.Path("late").write_text("in the way")
            assert 0

        def test_next(): pass
        """
    )
    result = pytester.runpytest_inprocess(*QUIET, f"{option}=late", "-Werror")
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["passed"]) == (1, 1)
    result.stdout.fnmatch_lines(["*could not be written: *late*"])


@pytest.mark.slow
def test_early_fakes_reach_django_settings(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_django")
    pytester.makeini(
        "[pytest]\nfakecloud_early = vector_index\nDJANGO_SETTINGS_MODULE = early_settings"
    )
    pytester.makepyfile(
        early_settings="""
        import os

        SECRET_KEY = "x"
        INSTALLED_APPS = []
        USE_TZ = True
        VECTOR_URL = os.environ["UPSTASH_VECTOR_REST_URL"]
        VECTOR_TOKEN = os.environ["UPSTASH_VECTOR_REST_TOKEN"]
        """,
        test_django="""
        def test_it(settings, vector_index):
            assert settings.VECTOR_URL == vector_index.url
            assert settings.VECTOR_TOKEN == vector_index.token
        """,
    )
    pytester.syspathinsert()
    apart(pytester, plugins=("django",)).assert_outcomes(passed=1)
    assert "early_settings" not in sys.modules


DJANGO = {
    "shop": """
    import json
    from django.http import HttpResponse
    from django.urls import path

    SECRET_KEY = "x"
    USE_TZ = True
    ALLOWED_HOSTS = ["*"]
    ROOT_URLCONF = "shop"
    INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}

    def hook(request):
        from django.contrib.auth.models import Group

        Group.objects.create(name=request.headers["Upstash-Message-Id"])
        return HttpResponse("ok")

    urlpatterns = [path("hook", hook), path("callback", hook)]
    """,
    "test_shop": """
    import pytest
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    pytestmark = pytest.mark.django_db
    ORIGIN = "https://shop.example.com"

    def groups():
        from django.contrib.auth.models import Group

        return Group.objects.count()

    @pytest.mark.parametrize("kind", ["wsgi", "asgi"])
    def test_rows(queue, kind):
        getattr(queue.destinations, kind)(ORIGIN, {
            "wsgi": get_wsgi_application, "asgi": get_asgi_application,
        }[kind]())
        queue.publish(f"{ORIGIN}/hook", callback=f"{ORIGIN}/callback")
        queue.run_until_idle()
        assert groups() == 2

    def test_no_rows(queue):
        assert groups() == 0

    @pytest.mark.django_db(transaction=True)
    def test_without_a_transaction(queue):
        assert groups() == -1
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["driven", "background"])
def test_rows_of_the_application_end_with_a_test_that_delivers_them(
    pytester: pytest.Pytester, delivery: str
) -> None:
    pytest.importorskip("pytest_django")
    pytester.makeini(
        "[pytest]\nfakecloud_early = kv_server queue\nDJANGO_SETTINGS_MODULE = shop\npythonpath = ."
    )
    pytester.makeconftest(
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def fakecloud_session_settings():
            return {{"queue": {{"delivery": "{delivery}"}}}}
        """
    )
    pytester.makepyfile(**DJANGO)
    result = apart(pytester, plugins=("django",))
    hint = "queue delivered in the background, in this test or an earlier one, so the application ran *"
    if delivery == "driven":
        result.assert_outcomes(passed=3, failed=1)
        result.stdout.no_fnmatch_line(hint)
    else:
        result.assert_outcomes(passed=1, failed=3)
        result.stdout.fnmatch_lines(["FAILED*test_no_rows*"])
        assert result.stdout.str().count(hint.rstrip("*")) == 2
        last = result.stdout.str().partition("_ test_without_a_transaction _")[2]
        assert "- fakecloud -" in last
        assert "ran in another thread" not in last


@pytest.mark.parametrize(("times", "slept"), [(2, 3.0), (500, 0.0), (0, 0.0)])
def test_a_process_that_waits_for_its_turn_does_not_sleep(
    monkeypatch: pytest.MonkeyPatch, times: int, slept: float
) -> None:
    from pytest_fakecloud.pytest_run import observation

    figures = [(10.0, 1.0, 7), (13.0, 1.0, 7 + times)]
    monkeypatch.setattr(observation, "_figures", lambda: figures.pop(0))
    meter = observation.SleepMeter()
    assert meter.seconds() == slept


def test_calls_have_stacks_while_two_clouds_are_open(run: Run) -> None:
    run(
        """
        import httpx

        def names(cloud):
            stacks = cloud._context.recorder.shared.stacks
            return [code.co_name for stack in stacks.values() for code, _ in stack.places]

        def get(kv):
            httpx.post(kv.url, json=["GET", "k"], headers=kv.headers)

        def test_first(fakecloud_session):
            get(fakecloud_session.kv_server())

        def test_second(fakecloud_session, kv_server, fakecloud):
            kv = fakecloud_session.kv_server()
            get(kv)
            get(kv_server)
            assert names(fakecloud_session) == ["get", "test_second"]
            assert names(fakecloud) == ["get", "test_second"]

        def test_third(kv_server, fakecloud, request):
            session = request.getfixturevalue("fakecloud_session")
            get(session.kv_server())
            get(kv_server)
            assert names(session) == ["get", "test_third"]
            assert names(fakecloud) == ["get", "test_third"]
        """
    ).assert_outcomes(passed=3)


@pytest.mark.parametrize("scope", ["function", "module", "session"])
def test_calls_of_fixtures_have_the_lines_that_make_them(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}\nfakecloud_call_sites = true")
    result = run(
        """
        import httpx
        import pytest

        @pytest.fixture
        def before(kv_server):
            httpx.post(kv_server.url, json=["GET", "k"], headers=kv_server.headers)

        @pytest.mark.parametrize("turn", range(2))
        def test_it(before, turn):
            assert 0
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["* --> kv_server GET k *", "*.py:6*"] * 2)


def test_a_fixture_starts_a_fake_that_an_earlier_test_has_replayed_into(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    run(
        """
        import requests
        from pytest_fakecloud import Cloud
        from pytest_fakecloud.cloud.cloud import archive_of

        def recorded():
            with Cloud() as cloud:
                kv = cloud.kv_server()
                requests.post(kv.url, json=["SET", "k", "v"], headers=kv.headers)
                return archive_of(cloud)

        def test_first(fakecloud):
            fakecloud.replay(recorded())
            assert [fake.value("k") for fake in fakecloud.fakes()] == ["v"]

        def test_second(kv_server):
            asked = requests.post(kv_server.url, json=["GET", "k"], headers=kv_server.headers)
            assert asked.json() == {"result": None}
        """
    ).assert_outcomes(passed=2)


@pytest.mark.parametrize("table", ["tool.pytest.ini_options", "tool.pytest"])
@pytest.mark.parametrize(
    "setting",
    [
        "fakecloud_strict = false", "fakecloud_strict = []", "fakecloud_strict = 'unmet'",
        "fakecloud_strict = ['bug', 'unmet']", "fakecloud_strict = false\nfakecloud_call_sites = true",
        "fakecloud_strict = false\nfakecloud_call_sites = 1",
        "fakecloud_strict = 'no'\nfakecloud_env = 'yes'",
        "fakecloud_strict = false\nfakecloud_share_tls_context = false",
        "fakecloud_strict = false\nfakecloud_early = ['kv_server']",
        "fakecloud_strict = false\nfakecloud_early = 'kv_server'",
        "fakecloud_strict = false\nfakecloud_early = ''",
        "fakecloud_strict = false\nfakecloud_transport = ''",
    ],
)  # fmt: skip
def test_settings_in_toml(pytester: pytest.Pytester, table: str, setting: str) -> None:
    if table == "tool.pytest" and pytest.version_tuple < (9, 0):
        pytest.skip("this version of pytest does not read the table")
    pytester.makepyprojecttoml(f"[{table}]\n{setting}\n")
    pytester.makepyfile(
        """
        def test_it(kv_server, queue):
            queue.publish("https://nowhere.example.com", retries=0)
            queue.run_until_idle()
        """
    )
    result = pytester.runpytest_inprocess(*QUIET, "-W", "error::pytest.PytestWarning")
    result.assert_outcomes(passed=1)
