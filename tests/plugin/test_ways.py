"""Every setting takes effect or is an error, whichever way it is given."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.services import SERVICES, fake_class, find, services_by_word
from pytest_fakecloud.core.settings import connection_settings
from pytest_fakecloud.pytest_run.options import TEST_SETTINGS

from ..harness import QUIET, Run

EFFECTS: dict[str, tuple[object, str]] = {
    "now": ("2030-05-01T00:00:00Z", "assert fakecloud.clock.now().year == 2030"),
    "clock": ("frozen", "assert fakecloud.clock.mode == 'frozen'"),
    "seed": (7, "assert fakecloud.seed == 7"),
    "process_time": (True, "assert time.time() == fakecloud.clock.now().timestamp()"),
    "strict": (False, "kv_server.faults.drop()"),
    "env": (True, "assert os.environ['QSTASH_URL'] == queue.url"),
    "transport": ("inprocess", "assert kv_server._mount.origin in origins.shortcuts"),
    "tls": (True, "assert kv_server.url.startswith('https:')"),
    "kv_server": ({"daily_limit": 1}, "assert_limited(kv_server)"),
    "queue": ({"retries": 1}, "assert_retries(queue)"),
}
"""A value of each setting, and a statement that fails without it."""
OF_TESTS = ("strict", "env")
OF_FAKES = [name for name in EFFECTS if name not in OF_TESTS]
HEAD = """
import os, time
import pytest
from pytest_fakecloud.process.inprocess import origins

def assert_limited(kv):
    kv.client().set("k", "v")
    with pytest.raises(Exception, match="limit"):
        kv.client().set("k", "v")

def assert_retries(queue):
    queue.destinations.respond("https://a.test", 500)
    message = queue.publish("https://a.test")
    queue.run_until_idle()
    assert len(message.attempts) == 2
"""
TEST = "def test_{name}({more}fakecloud, kv_server, queue):\n    {check}\n"
METHOD = (
    "class Test_{name}:\n    def test_{name}(self, fakecloud, kv_server, queue):\n        {check}\n"
)
WAYS = {
    "function": "@pytest.mark.fakecloud(**{given})\n" + TEST,
    "class": "@pytest.mark.fakecloud(**{given})\n" + METHOD,
    "parameter": (
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.fakecloud(**{given}))])\n"
        + TEST.replace("{more}", "n, ")
    ),
    "fixture": (
        METHOD + "    @pytest.fixture\n    def fakecloud_settings(self):\n        return {given}\n"
    ),
    "direct": "@pytest.mark.parametrize('fakecloud_settings', [{given}])\n" + TEST,
    "indirect": "@pytest.mark.parametrize('fakecloud_settings', [{given}], indirect=True)\n" + TEST,
}


def source(template: str, names: Iterable[str] = tuple(EFFECTS)) -> str:
    """Return a test file with a test for each setting."""
    tests = [
        template.format(name=name, given={name: EFFECTS[name][0]}, check=EFFECTS[name][1], more="")
        for name in names
    ]
    return "\n\n".join([HEAD, *tests])


def session_settings(settings: object) -> str:
    return (
        "import pytest\n@pytest.fixture(scope='session')\n"
        f"def fakecloud_session_settings():\n    return {settings!r}\n"
    )


def values(names: Iterable[str]) -> dict[str, object]:
    return {name: EFFECTS[name][0] for name in names}


@pytest.mark.completeness
def test_every_setting_has_an_effect_here(run: Run) -> None:
    own = {name for name in EFFECTS if name not in SERVICES}
    assert own == set(TEST_SETTINGS)
    run(source(TEST)).assert_outcomes(failed=len(EFFECTS))


@pytest.mark.parametrize("way", WAYS)
def test_settings_of_one_test(way: str, run: Run) -> None:
    run(source(WAYS[way])).assert_outcomes(passed=len(EFFECTS))


@pytest.mark.parametrize(
    "way",
    [
        "pytestmark = pytest.mark.fakecloud(**{})",
        "@pytest.fixture\ndef fakecloud_settings(): return {}",
    ],
    ids=["module", "conftest"],
)
def test_settings_of_many_tests(way: str, run: Run, pytester: pytest.Pytester) -> None:
    text = f"import pytest\n{way.format(values(EFFECTS))}\n"
    if "fixture" in way:
        pytester.makeconftest(text)
        text = ""
    run(text + source(TEST)).assert_outcomes(passed=len(EFFECTS))


INI = ["fakecloud_scope = session", "fakecloud_early = kv_server queue", "fakecloud_early = queue"]


@pytest.mark.parametrize("ini", INI)
def test_settings_of_the_sessions_fakes(ini: str, run: Run, pytester: pytest.Pytester) -> None:
    names = [name for name in EFFECTS if name != "tls" or "early" not in ini]
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(session_settings(values(names)))
    twice = "@pytest.mark.parametrize('n', [1, 2])\n" + TEST.replace("{more}", "n, ")
    run(source(twice, names)).assert_outcomes(passed=2 * len(names))


def test_settings_of_fakes_of_session_fixtures(run: Run, pytester: pytest.Pytester) -> None:
    names = [name for name in OF_FAKES if name not in SERVICES]
    pytester.makeconftest(
        session_settings(values(names))
        + "@pytest.fixture\ndef fakecloud(fakecloud_session): return fakecloud_session\n"
        + "@pytest.fixture\ndef kv_server(fakecloud): return fakecloud.kv_server()\n"
        + "@pytest.fixture\ndef queue(fakecloud): return fakecloud.queue()\n"
    )
    run(source(TEST, names)).assert_outcomes(passed=len(names))


@pytest.mark.parametrize("name", [*OF_TESTS, "kv_server", "queue"])
def test_settings_that_session_fixtures_cannot_have(
    name: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(session_settings(values([name])))
    result = run("def test_it(fakecloud_session): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{name} in fakecloud_session_settings has no effect*"])


# -- fakes that start early ------------------------------------------------------------------------

APPLICATION = """
import os
OURS = ("UPSTASH_", "KV_", "REDIS_", "QSTASH_")
ADDRESSES = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
"""


def test_early_fakes_keep_their_variables_when_they_get_their_settings(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_early = {' '.join(services_by_word())}")
    settings = values(name for name in EFFECTS if name != "tls")
    settings |= {"broker": {"topics": {"orders": 2}}, "vector_index": {"dimension": 3}}
    pytester.makepyfile(early_application=APPLICATION)
    pytester.makeconftest(
        "import early_application, redis\n"
        "CLIENT = redis.Redis.from_url(early_application.ADDRESSES['REDIS_URL'])\n"
        "CLIENT.set('early', 1)\n" + session_settings(settings)
    )
    pytester.syspathinsert()
    run(
        """
        import time
        from conftest import CLIENT
        from early_application import ADDRESSES

        def test_without_a_fixture():
            assert time.gmtime().tm_year == 2030
            assert CLIENT.exists("early") == 0

        def test_all(kv_server, vector_index, broker, queue):
            assert kv_server.env | vector_index.env | broker.env | queue.env == ADDRESSES
            CLIENT.set("k", "v")
            assert kv_server.contents() == {"k": "v"}
            assert broker.topic("orders").partitions == 2
            assert vector_index.headers and queue.current_signing_key
            message = queue.publish("https://a.test/hook")
            queue.destinations.respond("https://a.test", 200)
            queue.clock.advance("1s")
        """
    ).assert_outcomes(passed=2)


CONNECTIONS = {
    "host": "localhost",
    "port": 0,
    "token": "x",
    "username": "x",
    "password": "x",
    "database_port": 0,
    "node_ports": [],
    "sentinel_port": 0,
    "database_password": "x",
    "dev_credentials": True,
}


@pytest.mark.parametrize("fixture", [service.fixture for service in services_by_word().values()])
def test_early_fakes_have_their_addresses_already(
    fixture: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_early = {fixture}")
    declared = fake_class(find(fixture))._config_class
    names = sorted(connection_settings(declared))
    pytester.makeconftest(session_settings({fixture: {name: CONNECTIONS[name] for name in names}}))
    result = run("def test_it(): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{', '.join(names)} of {fixture} in *early has already chosen*"])


def test_early_fakes_cannot_change_to_a_server_without_their_variables(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nfakecloud_early = kv_server")
    with Cloud() as cloud:
        pytester.makeconftest(
            session_settings({"kv_server": {"engine": cloud.kv_server().database_url}})
        )
        result = run("def test_it(): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*would remove KV_URL and REDIS_URL, which fakecloud_early has already set*"]
    )


def test_early_fakes_cannot_change_to_https(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_early = queue")
    pytester.makeconftest(session_settings({"tls": True}))
    result = run("def test_it(): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*tls in fakecloud_session_settings has no effect*"])


@pytest.mark.parametrize("ini", INI)
@pytest.mark.parametrize("fakes", ["", "kv_server"])
def test_settings_of_one_test_for_fakes_of_the_session(
    ini: str, fakes: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    ways = [WAYS[way] for way in ("function", "class", "parameter")]
    if fakes or "early" in ini:
        ways.append(WAYS["fixture"])
    text = "\n".join(source(way, OF_FAKES) for way in ways)
    text = text.replace("fakecloud, kv_server, queue", fakes).replace(
        "class Test_", "class Test_{}_"
    )
    for number in range(text.count("Test_{}_") + 1):
        text = text.replace("Test_{}_", f"Test_{number}_", 1)
    for number in range(text.count("def test_") + 1):
        text = text.replace("def test_", f"def tests{number}_", 1)
    result = run(text, "-o", "python_functions=tests*")
    outcomes = result.parseoutcomes()
    assert outcomes == {"errors": outcomes["errors"]} or outcomes.keys() <= {"errors", "failed"}
    assert sum(outcomes.values()) == len(ways) * len(OF_FAKES)
    for name in OF_FAKES:
        result.stdout.fnmatch_lines([f"*{name} cannot be set for one test*"])


@pytest.mark.parametrize("scope", ["class", "module"])
def test_settings_of_the_fakes_of_a_class_or_module(
    scope: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    settings = values(EFFECTS)
    fixture = (
        f"import pytest\n@pytest.fixture(scope={scope!r})\n"
        f"def fakecloud_settings():\n    return {settings!r}\n"
    )
    pytester.makeconftest(fixture)
    run(source(METHOD)).assert_outcomes(passed=len(EFFECTS))
    pytester.makeconftest("")
    mark = f"@pytest.mark.fakecloud(**{settings!r})\nclass Test_"
    text = (
        source(METHOD).replace("class Test_", mark)
        if scope == "class"
        else (source(METHOD) + f"\npytestmark = pytest.mark.fakecloud(**{settings!r})\n")
    )
    run(text).assert_outcomes(passed=len(EFFECTS))


@pytest.mark.parametrize("scope", ["class", "module"])
@pytest.mark.parametrize("way", ["function", "class", "fixture"])
def test_settings_of_one_test_for_fakes_of_a_class_or_module(
    scope: str, way: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    if scope == "class" and way == "class":
        pytest.skip("the settings of a class are those of its fakes")
    marked = "    @pytest.mark.fakecloud(**{given})\n    def test_{name}"
    template = {
        "function": METHOD.replace("    def test_{name}", marked),
        "class": WAYS["class"],
        "fixture": WAYS["fixture"],
    }[way]
    result = run(source(template, OF_FAKES))
    assert result.parseoutcomes() == {"errors": len(OF_FAKES)}
    for name in OF_FAKES:
        said = f"*{name} cannot be set for one test*whole {scope}*"
        if way == "fixture":
            said = "ScopeMismatch: *function scoped fixture fakecloud_settings*"
        result.stdout.fnmatch_lines([said])
    wide = template.replace("@pytest.fixture\n", f"@pytest.fixture(scope={scope!r})\n")
    for name in OF_TESTS:
        run(source(wide, [name])).assert_outcomes(passed=1)


@pytest.mark.parametrize("scope", ["class", "module", "session"])
@pytest.mark.parametrize("fixture", ["fakecloud_settings", "fakecloud_session_settings"])
def test_settings_with_a_narrower_scope_than_the_fakes_name_both(
    scope: str, fixture: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    code = """
        import pytest
        @pytest.fixture{0}
        def {1}():
            return {{"seed": 3}}
        def test_it(kv_server):
            assert kv_server
    """
    result = run(code.format("", fixture))
    wide, better = scope, fixture
    if "session" in (scope, fixture.split("_")[1]):
        wide, better = "session", "fakecloud_session_settings"
    result.stdout.fnmatch_lines(
        [
            f"ScopeMismatch: *function scoped fixture {fixture}*",
            "fakecloud: the fakes last longer than a test (fakecloud_scope, *",
            f"    @pytest.fixture(scope='{wide}')",
            f"    def {better}():",
        ]
    )
    run(code.format(f"(scope={wide!r})", better)).assert_outcomes(passed=1)


# -- settings given twice --------------------------------------------------------------------------


def test_settings_of_a_test_cannot_be_those_of_fakes_of_the_session(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\nfakecloud_early = kv_server")
    usual = "def test_it(kv_server): pass"
    other = """
        import pytest

        @pytest.fixture(scope="session")
        def fakecloud_settings():
            return {"env": True}

        def test_it():
            pass
        """
    pytester.makepyfile(test_1=usual, test_2=other, test_3=usual)
    result = pytester.runpytest_inprocess(*QUIET)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*env in fakecloud_settings has no effect*session*marker*"])


@pytest.mark.parametrize(
    ("ini", "fake"),
    [
        ("fakecloud_scope = session", "queue"),
        ("fakecloud_early = queue", "queue"),
        ("fakecloud_early = queue", ""),
        ("", "fakecloud_session"),
    ],
)
def test_settings_of_the_session_are_given_once(
    ini: str, fake: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makeconftest(session_settings({"seed": 1}))
    test = f"def test_it({fake}): pass\n"
    pytester.makepyfile(
        test_1=test,
        test_2=session_settings({"seed": 2}) + test,
        test_3=session_settings({"seed": 1}) + test,
    )
    result = pytester.runpytest_inprocess(*QUIET)
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes.get("failed", 0) + outcomes.get("errors", 0)) == (2, 1)
    result.stdout.fnmatch_lines(["*fakecloud_session_settings has other settings for this test*"])


def test_parameters_of_the_settings_of_the_session(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    template = """
        import pytest

        @pytest.mark.parametrize("fakecloud_session_settings", {given}, indirect=True)
        def test_it(fakecloud, fakecloud_session_settings):
            assert fakecloud.seed == 1
    """
    run(template.format(given="[{'seed': 1}]")).assert_outcomes(passed=1)
    result = run(template.format(given="[{'seed': 1}, {'seed': 2}]"))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*has other settings for this test*without parameters*"])


def test_the_fixture_of_the_session_returns_settings(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    pytester.makeconftest(session_settings(None))
    result = run("def test_it(queue): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fakecloud_session_settings must return a dict*, got None"])


@pytest.mark.parametrize(
    ("test", "warnings"),
    [
        ("def test_it(kv_server): pass", 1),
        ("def test_it(kv_server): pass\ndef test_2(fakecloud_session): pass", 0),
        (
            "import pytest\n@pytest.fixture\ndef mine(fakecloud_session): pass\n"
            "def test_it(kv_server): pass\ndef test_2(mine): pass",
            0,
        ),
    ],
    ids=["unused", "a test uses them", "a fixture uses them"],
)
def test_settings_of_a_session_that_no_test_uses(
    test: str, warnings: int, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(session_settings({"seed": 1}))
    result = run(test)
    assert result.parseoutcomes().get("warnings", 0) == warnings
    if warnings:
        result.stdout.fnmatch_lines(["*fakecloud_session_settings has no effect*"])


# -- markers and fixtures --------------------------------------------------------------------------


def test_fixtures_of_fakes_have_no_parameters(run: Run) -> None:
    from pytest_fakecloud.plugin import _FIXTURES

    names = sorted(_FIXTURES - {"fakecloud_settings", "fakecloud_session_settings"})
    test = "@pytest.mark.parametrize('{0}', [1], indirect=True)\ndef test_{0}({0}): pass\n"
    result = run("import pytest\n" + "\n".join(test.format(name) for name in names))
    result.assert_outcomes(errors=len(names))
    for name in names:
        result.stdout.fnmatch_lines([f"*the fixture {name} has no parameters*"])
