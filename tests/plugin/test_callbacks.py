"""Exceptions of callbacks: some fail the test, some end it, and some become a 500."""

from __future__ import annotations

import re
import signal

import pytest

from ..harness import Run, apart

SETUP = """
        import asyncio
        import pytest
        import requests
        import trio

        URL = "https://app.test/hook"

        def hook(request=None):
            FAILS

        async def coroutine(request):
            await asyncio.sleep(0)
            hook()

        def deliver(queue, url=URL):
            queue.publish(url, json={"total": 2}, retries=1)
            queue.run_until_idle()

        def ask(fake, path, body):
            return requests.post(fake.url + path, json=body, headers=fake.headers)
"""

CALLBACKS = {
    "call": """
        def test_it(queue):
            queue.destinations.call(URL, hook)
            deliver(queue)
    """,
    "coroutine": """
        def test_it(queue):
            queue.destinations.call(URL, coroutine)
            deliver(queue)
    """,
    "awaited": """
        def test_it(queue):
            async def whole():
                queue.publish(URL, json={"total": 2}, retries=1)
                await queue.aio.run_until_idle()
            queue.destinations.call(URL, coroutine)
            asyncio.run(whole())
    """,
    "destination": """
        def test_it(queue, destination):
            destination.server.expect_request("/hook").respond_with_handler(hook)
            deliver(queue, destination.server.url_for("/hook"))
    """,
    "callback_capture": """
        def test_it(queue, callback_capture):
            callback_capture.server.expect_request("/callback").respond_with_handler(hook)
            deliver(queue, callback_capture.callback_url)
    """,
    "wsgi": """
        def test_it(queue):
            queue.destinations.wsgi("https://app.test", lambda environ, start_response: hook())
            deliver(queue)
    """,
    "flask": """
        from flask import Flask

        def test_it(queue):
            app = Flask("app")
            app.post("/hook")(hook)
            queue.destinations.wsgi("https://app.test", app)
            deliver(queue)
    """,
    "asgi": """
        def test_it(queue):
            async def app(scope, receive, send):
                if scope["type"] == "http":
                    hook()
            queue.destinations.asgi("https://app.test", app)
            deliver(queue)
    """,
    "starlette": """
        from starlette.applications import Starlette
        from starlette.routing import Route

        def test_it(queue):
            app = Starlette(routes=[Route("/hook", hook, methods=["POST"])])
            queue.destinations.asgi("https://app.test", app)
            deliver(queue)
    """,
    "lifespan": """
        from contextlib import asynccontextmanager
        from starlette.applications import Starlette

        def test_it(queue):
            @asynccontextmanager
            async def lifespan(app):
                hook()
                yield
            queue.destinations.asgi("https://app.test", Starlette(lifespan=lifespan))
            deliver(queue)
    """,
    "responses": """
        import responses

        def test_it(queue):
            with responses.RequestsMock() as mock:
                mock.add_callback("POST", URL, hook)
                deliver(queue)
    """,
    "language model": """
        def test_it(queue):
            queue.destinations.call("api/llm", hook)
            ask(queue, "/llm/v1/chat/completions", {})
    """,
    "fault": """
        def test_it(kv_server):
            kv_server.faults.call(hook, times=1)
            ask(kv_server, "", ["SET", "k", "v"])
    """,
    "predicate": """
        def test_it(kv_server):
            kv_server.faults.drop(when=hook)
            kv_server.faults.clear() if ask(kv_server, "", ["SET", "k", "v"]).ok else None
            kv_server.faults.clear()
    """,
    "database port": """
        import redis

        def test_it(kv_server):
            kv_server.faults.call(hook, times=1)
            client = redis.Redis.from_url(kv_server.database_url)
            with pytest.raises(redis.RedisError):
                client.get("k")
            client.close()
    """,
    "between": """
        def test_it(kv_server):
            with kv_server.between(1, run=hook):
                ask(kv_server, "/pipeline", [["SET", "k", "v"], ["GET", "k"]])
    """,
    "embedding": """
        @pytest.mark.fakecloud(vector_index={"embedding": hook})
        def test_it(vector_index):
            ask(vector_index, "/upsert-data", [{"id": "a", "data": "words"}])
    """,
}


def _of(name: str, statement: str) -> str:
    return SETUP.replace("FAILS", statement) + CALLBACKS[name]


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_failing_assertion_fails_the_test_with_its_message_and_line(run: Run, name: str) -> None:
    result = run(_of(name, 'total = 2; assert total == 3, "wrong total"'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>  *assert total == 3, "wrong total"',
            "E  *AssertionError: wrong total",
            "E  *assert 2 == 3",
            "E  *fakecloud: the test passed, but with * strict-mode violation*",
            "E  *[[]assertion] *: a callback of the test raised AssertionError: wrong total"
            ' (test_*.py:*) (if intended: fakecloud.allow("assertion", fake="*"))*',
            "test_*.py:*: AssertionError",
        ]
    )
    result.stdout.no_fnmatch_line("*bug of pytest-fakecloud*")


@pytest.mark.parametrize("name", CALLBACKS)
def test_an_outcome_of_pytest_ends_the_test_as_itself(run: Run, name: str) -> None:
    run(_of(name, 'pytest.skip("not today")')).assert_outcomes(skipped=1)


@pytest.mark.parametrize("name", ["call", "coroutine", "destination", "fault", "between"])
def test_pytest_fail_fails_a_test_that_is_not_strict(run: Run, name: str) -> None:
    source = "        import pytest\n        pytestmark = pytest.mark.fakecloud(strict=False)\n"
    result = run(source + _of(name, 'pytest.fail("not like this")'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['>  *pytest.fail("not like this")', "E  *Failed: not like this"])


@pytest.mark.parametrize("relaxed", ["strict=False", "strict='bug unmet'"])
def test_an_assertion_is_a_500_where_the_test_is_not_strict(run: Run, relaxed: str) -> None:
    source = f"        import pytest\n        pytestmark = pytest.mark.fakecloud({relaxed})\n"
    for name in ("call", "destination", "fault"):
        run(source + _of(name, "assert False")).assert_outcomes(passed=1)


@pytest.mark.parametrize("error", ["ValueError('broken')", "KeyError('total')"])
def test_other_exceptions_are_failures_of_the_application(run: Run, error: str) -> None:
    for name in ("call", "flask", "starlette", "asgi"):
        run(_of(name, f"raise {error}")).assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="pytest-timeout interrupts by a signal")
def test_a_time_out_inside_the_code_under_test_ends_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import signal
        import threading

        import pytest
        import requests

        pytestmark = pytest.mark.timeout(600, method="signal")
        URL = "https://app.test/hook"


        def hang(*_):
            # Make the test's timer end now, and not before this line on a busy machine.
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            threading.Event().wait(30)


        def get(fake, path):
            return requests.post(fake.url + path, json=[["GET", "k"]] * 2, headers=fake.headers)


        def test_a_handler(queue):
            queue.destinations.call(URL, hang)
            queue.publish(URL)
            queue.run_until_idle()


        @pytest.mark.fakecloud(transport="inprocess")
        def test_between(kv_server):
            with kv_server.between(1, run=hang):
                get(kv_server, "/pipeline")
        """
    )
    result = apart(pytester, plugins=("timeout",))
    result.assert_outcomes(failed=2)
    timeouts = re.findall(
        r"^E +Failed: Timeout \(>600\.0s\) from", result.stdout.str(), re.MULTILINE
    )
    assert len(timeouts) == 2
