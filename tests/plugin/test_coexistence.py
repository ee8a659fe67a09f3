"""Other tools in a suite; tests/docs also runs the recipes of docs/cookbook/tools.md."""

from __future__ import annotations

import re
import textwrap

import pytest

from ..harness import QUIET, Run, apart, quiet_but

pytestmark = pytest.mark.slow


def test_a_session_scope_under_xdist_has_a_cloud_for_each_worker(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    pytester.makepyfile(
        textwrap.dedent(
            """
            import pytest

            seen = set()

            @pytest.mark.parametrize("turn", range(8))
            def test_it(kv_server, turn):
                seen.add(kv_server.url)
                assert len(seen) == 1
                assert kv_server.client().incr("n") == 1
            """
        )
    )
    pytester.runpytest_inprocess(*quiet_but("xdist"), "-n2").assert_outcomes(passed=8)


def test_pytest_rewrites_no_module_of_an_installed_package(pytester: pytest.Pytester) -> None:
    # pytest marks what distributions with plugins contain; this one is installed as a link here.
    pytester.makepyfile(
        installed="import pytest\npytest.register_assert_rewrite('pytest_fakecloud')",
        test_loaders="""
            import sys

            def test_it(kv_server):
                loaders = {
                    name: type(module.__loader__).__name__
                    for name, module in sys.modules.items()
                    if name.startswith("pytest_fakecloud.") and name != "pytest_fakecloud.plugin"
                }
                assert "pytest_fakecloud.kv.engine.engine" in loaders
                assert set(loaders.values()) == {"SourceFileLoader"}
        """,
    )
    apart(pytester, "-pinstalled").assert_outcomes(passed=1)


def test_blocking_commands_answer_in_a_process_patched_by_gevent(pytester: pytest.Pytester) -> None:
    pytest.importorskip("gevent")
    pytester.makepyfile(
        patched="import gevent.monkey\ngevent.monkey.patch_all()",
        test_waits="""
            import gevent
            import pytest
            import redis

            @pytest.mark.parametrize("line", [
                "BLPOP jobs 0", "BRPOP jobs 0", "BLMOVE jobs done LEFT LEFT 0",
                "XREAD BLOCK 0 STREAMS log $",
            ])
            def test_it(kv_server, line):
                client, other = (
                    redis.Redis.from_url(kv_server.database_url, socket_timeout=10, retry=None)
                    for _ in range(2)
                )
                waiting = gevent.spawn(client.execute_command, *line.split())
                while not other.info("clients")["blocked_clients"]:
                    gevent.sleep(0.01)
                other.rpush("jobs", "x")
                other.xadd("log", {"n": 1})
                assert waiting.get(timeout=10)
                assert client.ping()
        """,
    )
    apart(pytester, "-ppatched").assert_outcomes(passed=4)


ENDS_CONNECTIONS = textwrap.dedent(
    """
    import redis
    import requests
    from pytest_fakecloud import Cloud

    clients = []

    def connect(kv, **options):
        client = redis.Redis.from_url(kv.database_url, **options)
        assert client.ping()
        clients.append(client)

    def test_fixture(kv_server):
        connect(kv_server)
        session = requests.Session()
        assert session.get(kv_server.url + "/ping", headers=kv_server.headers).ok
        clients.append(session)
    """
)


def test_fakes_end_open_connections_in_a_process_patched_by_gevent(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("gevent")
    pytester.makepyfile(
        patched="import gevent.monkey\ngevent.monkey.patch_all()",
        test_ends=ENDS_CONNECTIONS
        + textwrap.dedent(
            """

            def test_outage(kv_server):
                connect(kv_server)
                kv_server.faults.down()
                kv_server.faults.up()
                connect(kv_server)

            def test_tls():
                with Cloud(tls=True) as cloud:
                    connect(cloud.kv_server(), ssl_ca_certs=cloud.authority.ca_file)
                    cloud.close()
                    assert cloud.violations() == []
            """
        ),
    )
    apart(pytester, "-ppatched").assert_outcomes(passed=3)


def test_fakes_end_connections_of_gevent_after_pytest_socket_has_restored_other_sockets(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("gevent")
    pytest.importorskip("pytest_socket")
    # At the end of each test, pytest-socket restores the class that it has found when it was imported.
    pytester.makeconftest("import gevent.monkey\ngevent.monkey.patch_all(ssl=False)")
    pytester.makepyfile(ENDS_CONNECTIONS)
    apart(pytester, plugins=("socket",)).assert_outcomes(passed=1)


def test_code_without_event_loops_is_explored_in_a_process_patched_by_gevent(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("gevent")
    pytester.makepyfile(
        patched="import gevent.monkey\ngevent.monkey.patch_all()",
        test_explores="""
            import threading
            import pytest
            import redis
            import redis.asyncio
            from pytest_fakecloud import BrokenPromiseError, ContractError

            @pytest.fixture
            def count(kv_server):
                def count():
                    with redis.Redis.from_url(kv_server.database_url) as client:
                        client.set("n", int(client.get("n") or 0) + 1)
                return count

            @pytest.fixture
            def check(kv_server):
                async def check():
                    async with redis.asyncio.Redis.from_url(kv_server.database_url) as client:
                        assert int(await client.get("n")) == 2
                return check

            def test_functions(fakecloud, count, check):
                with pytest.raises(BrokenPromiseError, match="switch"):
                    fakecloud.explore({"ann": count, "bob": count}, check, kinds="switch")

            def test_threads(fakecloud, count, check):
                def work():
                    threads = [threading.Thread(target=count) for _ in range(2)]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
                with pytest.raises(BrokenPromiseError, match="switch"):
                    fakecloud.explore(work, check, kinds="switch")

            def test_event_loops(fakecloud, kv_server, check):
                async def work():
                    async with redis.asyncio.Redis.from_url(kv_server.database_url) as client:
                        await client.incr("n")
                with pytest.raises(ContractError, match="ann runs an event loop, but gevent has"):
                    fakecloud.explore({"ann": work, "bob": work}, check)
        """,
    )
    apart(pytester, "-ppatched", "-ptimeout", "--timeout=30").assert_outcomes(passed=3)


def test_the_order_of_randomly_changes_no_ids(run: Run) -> None:
    pytest.importorskip("pytest_randomly")
    source = """
        import pytest

        @pytest.mark.parametrize("turn", range(5))
        def test_it(queue, turn, request):
            print(f"<{request.node.name} {queue.publish('https://app.test/hook').id}>")
    """
    quiet = [option for option in QUIET if option != "-pno:randomly"]
    seen = []
    for seed in (1, 2, 3):
        result = run(source, *quiet, "-s", f"--randomly-seed={seed}", quiet=False)
        result.assert_outcomes(passed=5)
        seen.append(re.findall(r"<(\S+ msg_\w+)>", result.stdout.str()))
    assert len({tuple(lines) for lines in seen}) > 1
    assert len({tuple(sorted(lines)) for lines in seen}) == 1
