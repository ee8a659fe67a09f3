"""The report names a library that intercepts requests to fakes, and says how to let them through."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.hints.variables import VARIABLES, unread_variables

from ..harness import Run, apart, quiet_but

CASES: list[tuple[str, str, str, str]] = [
    ("responses", "", "responses.RequestsMock()",
     "responses intercepted a request to kv_server: let it through with "
     "responses.add_passthru(kv_server.url)"),
    ("respx", ", respx_mock", "",
     'respx intercepted a request to kv_server: let it through with respx.route(host="127.0.0.1")'
     ".pass_through()"),
    ("pytest_httpx", ", httpx_mock", "",
     "pytest-httpx intercepted a request to kv_server: let it through with @pytest.mark.httpx_mock("
     'should_mock=lambda request: request.url.host != "127.0.0.1")'),
    ("requests_mock", "", "requests_mock.Mocker()",
     "requests-mock intercepted a request to kv_server: let it through with "
     "requests_mock.Mocker(real_http=True)"),
    ("pook", "", "pook.use()",
     "pook intercepted a request to kv_server: let it through with pook.use(network=True), or "
     "pook.enable_network()"),
    ("vcr", "", "vcr.use_cassette('tape.yaml', record_mode='none')",
     "VCR.py intercepted a request to kv_server: let it through with vcr.VCR(ignore_localhost=True)"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "fixture", "block", "hint"), CASES)
def test_the_library_is_named(run: Run, module: str, fixture: str, block: str, hint: str) -> None:
    pytest.importorskip(module)
    client = "requests" if block else "httpx"
    source = f"""
        import {module}, {client}
        from contextlib import nullcontext

        def test_it(kv_server{fixture}):
            with {block or "nullcontext()"}:
                {client}.get(f"{{kv_server.url}}/get/k", headers=kv_server.headers)
    """
    result = run(source, *quiet_but("respx", "pytest_httpx"), quiet=False)
    assert result.parseoutcomes()["failed"] == 1
    assert hint in result.stdout.lines


@pytest.mark.parametrize(
    ("option", "remedy"),
    [("--disable-socket", "@pytest"), ("--allow-hosts=10.0.0.1", "--allow-hosts=127")],
)
@pytest.mark.slow
def test_pytest_socket_is_named(pytester: pytest.Pytester, option: str, remedy: str) -> None:
    pytest.importorskip("pytest_socket")
    pytester.makepyfile(
        """
        import httpx

        def test_it(kv_server):
            httpx.get(kv_server.url)
        """
    )
    result = apart(pytester, option, plugins=("socket",))
    hint = "pytest-socket blocked the connection to the fakes: allow loopback with"
    result.stdout.fnmatch_lines([f"*{hint} {remedy}*"])


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
    hint = (
        "kv_server received no request; responses was active in this test and may have intercepted"
    )
    result.stdout.fnmatch_lines([f"{hint} it: *"])


ACTIVE = [
    ("responses", "@responses.activate", "pass"),
    ("responses", "", "with responses.RequestsMock(): fails()"),
    ("responses", "", "responses.start(); fails()"),
    ("respx", "@respx.mock", "pass"),
    ("respx", "", "with respx.mock: fails()"),
    ("requests_mock", "@requests_mock.mock()", "pass"),
    ("requests_mock", "", "with requests_mock.Mocker(): fails()"),
    ("vcr", "", "with vcr.use_cassette('tape.yaml'): fails()"),
    ("pook", "@pook.on", "pass"),
]


@pytest.mark.parametrize(("module", "decorator", "line"), ACTIVE)
def test_a_library_that_was_active_is_suspected(
    run: Run, module: str, decorator: str, line: str
) -> None:
    pytest.importorskip(module)
    source = f"""
        import {module}

        def fails():
            assert 0

        {decorator}
        def test_it(kv_server, **given):
            {line}
            fails()

        def test_end():
            if "{module}" == "responses":
                {module}.stop(allow_assert=False); {module}.reset()
    """
    result = run(source)
    assert result.parseoutcomes() == {"failed": 1, "passed": 1}
    name = {"requests_mock": "requests-mock", "vcr": "VCR.py"}.get(module, module)
    result.stdout.fnmatch_lines(
        [f"kv_server received no request; {name} was active in this test and may have *"]
    )


@pytest.mark.parametrize(
    ("module", "fixture"),
    [("respx", "respx_mock"), ("pytest_httpx", "httpx_mock"), ("requests_mock", "requests_mock")],
)
def test_a_library_that_a_fixture_makes_active_is_suspected(
    run: Run, module: str, fixture: str
) -> None:
    pytest.importorskip(module)
    source = f"""
        def test_it(kv_server, {fixture}):
            assert 0
    """
    result = run(source, *quiet_but("respx", "pytest_httpx", "requests_mock"), quiet=False)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["kv_server received no request; *was active in this test*"])


@pytest.mark.parametrize("module", ["responses", "respx", "requests_mock", "vcr", "pook", "httpx"])
def test_a_library_that_is_only_imported_is_not_suspected(run: Run, module: str) -> None:
    pytest.importorskip(module)
    result = run(
        f"""
        import {module}
        import responses
        from responses import RequestsMock, activate, matchers

        def helper():
            return RequestsMock

        @activate
        def test_that_passes():
            responses.add(responses.GET, "https://a.example.com")

        def test_it(kv_server):
            assert matchers and helper() and {module}
            assert kv_server.keys()
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    assert "may have intercepted it" not in result.stdout.str()


# -- clients of other addresses --------------------------------------------------------------------

ONCE = """
import pytest
from upstash_redis import Redis

made = []

def client(kv):
    # As an application does that makes its client once, for the process.
    if not made:
        made.append(Redis(url=kv.url, token=kv.token, rest_retries=0))
    return made[0]

def test_first(kv_server):
    client(kv_server).set("k", "v")

def test_second(kv_server):
    client(kv_server).set("k", "v")

def test_swallowed(kv_server):
    redis = client(kv_server)
    try:
        redis.set("k", "v")
    except Exception:
        pass
    assert kv_server.value("k") == "v"
    redis.close()

def test_end():
    made[0].close()
"""


def test_a_client_of_an_earlier_test_is_told_how_fakes_stay(run: Run) -> None:
    result = run(ONCE)
    result.assert_outcomes(passed=2, failed=2)
    three_lines = [
        "    [pytest]",
        "    fakecloud_scope = session",
        "    fakecloud_early = kv_server",
    ]
    lines = result.outlines
    heads = [n for n, line in enumerate(lines) if line.startswith("a client called 127.0.0.1:")]
    assert len(heads) == 2
    for head in heads:
        assert "the address of a fake that is closed" in lines[head]
        assert lines[head + 1 : head + 4] == three_lines


def test_what_those_lines_say_helps(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session\nfakecloud_early = kv_server\n")
    run(ONCE).assert_outcomes(passed=4)


READS: dict[str, tuple[str, list[str]]] = {
    "another name": (
        "def connect():\n    return os.environ.get('REDIS_URI', 'redis://:pass@127.0.0.1:6399/0')",
        ["    shop.py:3 reads REDIS_URI, which is not set (so its default redis://***@127.0.0.1:6399/0 "
         "is used); fakecloud_env sets REDIS_URL"],
    ),
    "another name, without a default": (
        "def connect():\n    return environ['UPSTASH_REDIS_URL']",
        ["    shop.py:3 reads UPSTASH_REDIS_URL, which is not set; fakecloud_env sets "
         "UPSTASH_REDIS_REST_URL"],
    ),
    "a name that is set": (
        "connect = lambda: os.getenv('REDIS_OTHER')",
        ["    shop.py:2 reads REDIS_OTHER, which is set to another address; fakecloud_env sets "
         "REDIS_URL"],
    ),
    "a name that is set to a fake": ("connect = lambda: os.getenv('REDIS_FAKE')", []),
    "while it is imported": (
        "URL = os.getenv('REDIS_URL')", ["    shop.py:2 reads REDIS_URL when it is imported"]
    ),
    "in a default": (
        "def connect(url=os.getenv('REDIS_URL')):\n    pass",
        ["    shop.py:2 reads REDIS_URL when it is imported"],
    ),
    "in a decorator": (
        "@(lambda function: function, os.getenv('REDIS_URL'))[0]\ndef connect():\n    pass",
        ["    shop.py:2 reads REDIS_URL when it is imported"],
    ),
    "written and deleted": (
        "os.environ['REDIS_URL'] = 'redis://db'\ndel os.environ['REDIS_URL']", []
    ),
    "when it is called": ("def connect():\n    return os.environ['REDIS_URL']", []),
    "other variables": ("DEBUG = os.getenv('DEBUG', '1')\nHOME = os.environ.get(name())", []),
    "other objects": ("def connect(config):\n    return config.get('REDIS_URI', 'redis://a')", []),
    "invalid source": ("def (", []),
}  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), READS.values(), ids=READS)
def test_variables_that_the_application_reads_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(f"import os\n{source}\n", encoding="utf-8")
    shop = ModuleType("shop")
    shop.__file__ = str(tmp_path / "shop.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "shop", shop)
    with Cloud() as cloud:
        fake = cloud.kv_server().database_url
        monkeypatch.setenv("REDIS_FAKE", fake)
        monkeypatch.setenv("REDIS_OTHER", f"redis://cache.example.com:{fake.rpartition(':')[2]}")
        log = "WARNING counting in memory: ConnectionError"
        first, *variables = unread_variables(cloud, ["fakecloud_env"], log)
    if expected:
        assert first == "no fake received a request:"
        assert variables == expected
    else:
        assert first.startswith("no fake received a request; the log has ConnectionError")
        assert "KV_REST_API_URL" in variables[0]


# -- fakes that a test does not request ------------------------------------------------------------

SHOP = """
    import os, subprocess, sys
    import httpx, qstash, redis
    from upstash_redis import Redis
    from upstash_vector import Index

    NOWHERE = "http://127.0.0.1:1"

    def publish():
        return qstash.QStash(os.environ["QSTASH_TOKEN"]).message.publish(url="https://a.test")

    def publish_to_a_default():
        url = os.environ.get("QSTASH_URL", "http://127.0.0.1:1")
        return httpx.post(f"{url}/v2/publish/https://a.test")

    def publish_to_no_url():
        return httpx.post(f"{os.getenv('QSTASH_URL')}/v2/publish/https://a.test")

    def publish_to_another_server():
        client = qstash.QStash("token", base_url=BASE, retry=False)
        return client.message.publish(url="https://a.test")

    BASE = "http://localhost:1"

    def publish_in_a_subprocess():
        code = "import os; os.environ['QSTASH_TOKEN']"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    def query():
        return Index.from_env().info()

    def get():
        return Redis.from_env(allow_telemetry=False).get("k")

    def get_over_the_redis_protocol():
        return redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:1")).get("k")

    def topics():
        return httpx.get(os.environ["UPSTASH_KAFKA_REST_URL"] + "/topics")

    def get_then_publish():
        get()
        publish()

    def published_before(kv):
        os.getenv("QSTASH_TOKEN"), os.getenv("QSTASH_URL", "http://127.0.0.1:1")
        return httpx.get(kv.url, timeout=5)
"""
UNREQUESTED: dict[str, tuple[str, str, str]] = {
    "publish": ("kv_server", "queue", "QSTASH_TOKEN is not set"),
    "publish_to_a_default": (
        "kv_server",
        "queue",
        "shop.py:* reads QSTASH_URL, which is not set (*",
    ),
    "publish_to_no_url": ("broker", "queue", "shop.py:* reads QSTASH_URL, which is not set"),
    "publish_to_another_server": ("kv_server", "queue", "qstash called http://localhost:1"),
    "publish_in_a_subprocess": ("kv_server", "queue", "a subprocess had no QSTASH_TOKEN"),
    "query": ("queue", "vector_index", "UPSTASH_VECTOR_REST_URL is not set"),
    "get": ("queue", "kv_server", "UPSTASH_REDIS_REST_URL is not set"),
    "get_over_the_redis_protocol": ("queue", "kv_server", "shop.py:* reads REDIS_URL, which is *"),
    "topics": ("vector_index", "broker", "UPSTASH_KAFKA_REST_URL is not set"),
    "get_then_publish": ("kv_server", "queue", "QSTASH_TOKEN is not set"),
}
"""Functions of the application: the fixture that the test requests, the missing one, the reason."""


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in VARIABLES.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("function", "env"),
    [
        *((function, ", fakecloud_env") for function in UNREQUESTED),
        # The reason is the same without the variables of the requested fake.
        *((function, "") for function in ("publish", "publish_to_another_server", "query")),
    ],
)
def test_the_missing_fixture_is_named(
    run: Run, pytester: pytest.Pytester, function: str, env: str
) -> None:
    requested, missing, reason = UNREQUESTED[function]
    pytester.makepyfile(shop=SHOP)
    pytester.syspathinsert()
    result = run(
        f"import shop\n\ndef test_it({requested}{env}):\n    shop.{function}()", "--tb=short"
    )
    result.assert_outcomes(failed=1)
    advice = (
        "*: fakecloud_env sets only the variables of *" if env else " and fakecloud_env, which *"
    )
    result.stdout.fnmatch_lines([f"request {missing}{advice}", f"    {reason}"])
    assert "no fake received a request:" not in result.stdout.str()


@pytest.mark.usefixtures("no_variables")
def test_a_fault_of_a_requested_fake_names_no_other(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=SHOP)
    pytester.syspathinsert()
    result = run(
        """
        import redis
        import shop

        def test_rest(kv_server, fakecloud_env):
            with kv_server.faults.down():
                shop.published_before(kv_server)

        def test_redis(kv_server, fakecloud_env):
            with kv_server.faults.down():
                shop.get_over_the_redis_protocol()

        def test_reason_of_its_own(kv_server, fakecloud_env):
            shop.get()
            assert 0
        """
    )
    result.assert_outcomes(failed=3)
    result.stdout.no_fnmatch_line("request *fakecloud_env*")


@pytest.mark.usefixtures("no_variables")
def test_a_swallowed_error_may_be_of_another_fake(run: Run) -> None:
    result = run(
        """
        def test_it(kv_server, queue, fakecloud_env):
            assert 0
        """
    )
    result.stdout.fnmatch_lines(
        [
            "no fake received a request; the application may use a fake that the test does not request "
            "(vector_index, broker), or read other variables than fakecloud_env sets:"
        ]
    )


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    "imported",
    ["import shop", "from shop import publish", "def work():\n    import shop", "import sales"],
)
def test_only_code_that_the_test_uses_is_blamed(
    run: Run, pytester: pytest.Pytester, imported: str
) -> None:
    pytester.makepyfile(
        shop="import os\ndef publish():\n    return os.environ['QSTASH_URL']",
        sales="import shop",
        unrelated="import os\ndef connect():\n    return os.environ['UPSTASH_VECTOR_REST_URL']",
    )
    pytester.makeconftest("import shop, unrelated")
    pytester.syspathinsert()
    result = run(f"{imported}\ndef test_it(kv_server, fakecloud_env):\n    assert 0\n")
    result.assert_outcomes(failed=1)
    shown = " ".join(result.stdout.str().split())
    assert "reads QSTASH_URL, which is not set: request queue, with which fakecloud_env" in shown
    assert "unrelated" not in shown


@pytest.mark.usefixtures("no_variables")
def test_an_import_of_a_client_names_the_fixture_that_the_test_lacks(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        shop="def pay():\n    import qstash\n\ndef find():\n    from upstash_redis import Redis",
        unrelated="def search():\n    from upstash_vector import Index",
    )
    pytester.makeconftest("import shop, unrelated")
    pytester.syspathinsert()
    result = run("import shop\ndef test_it(kv_server, fakecloud_env):\n    assert 0\n")
    result.stdout.fnmatch_lines(
        ["no fake received a request:", "    shop.py:2 imports qstash: request queue"]
    )
    assert " imports upstash" not in result.stdout.str()
