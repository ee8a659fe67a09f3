"""A suite that uses every fake together with common plugins, if they are installed.

``test_coexistence.py`` runs the recipes for tools that need one. The plugins here need none.
"""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.slow

SUITE = """
import pytest

def test_kv(kv_server):
    kv_server.client().set("k", "v")
    assert kv_server.contents() == {"k": "v"}

def test_vector(vector_index):
    assert vector_index.vectors() == []

def test_broker(broker):
    broker.create_topic("orders", partitions=3)
    broker.produce("orders", "value")
    assert len(broker.records("orders")) == 1

def test_queue(queue, callback_capture, destination):
    destination.server.expect_request("/hook").respond_with_data("fine")
    queue.publish(destination.url + "/hook", callback=callback_capture.callback_url)
    queue.clock.advance("1h")
    assert len(queue.attempts()) == 2
    assert len(callback_capture.callbacks()) == 1
"""
FLAKY = """
turns = []

def test_flaky(kv_server):
    assert kv_server.keys() == []
    kv_server.client().set("k", "v")
    turns.append(1)
    assert len(turns) == 2
"""
BESIDE = {
    "pytest_bdd": ("pytest-bdd", []),
    "pytest_benchmark": ("benchmark", []),
    "pytest_check": ("check", []),
    "pytest_clarity": ("clarity", []),
    "pytest_cov": ("pytest_cov", ["--cov=."]),
    "pytest_dependency": ("dependency", []),
    "pytest_dotenv": ("dotenv", []),
    "pytest_env": ("env", []),
    "pytest_factoryboy": ("pytest-factoryboy", []),
    "pytest_flask": ("flask", []),
    "pytest_freezer": ("freezer", []),
    "pytest_instafail": ("instafail", ["--instafail"]),
    "pytest_localserver": ("localserver", []),
    "pytest_mock": ("pytest_mock", []),
    "pytest_order": ("pytest_order", []),
    "pytest_picked": ("picked", []),
    "pytest_recording": ("recording", []),
    "pytest_reraise": ("reraise", []),
    "pytest_split": ("pytest-split", ["--splits=1", "--group=1"]),
    "pytest_structlog": ("pytest-structlog", []),
    "pytest_sugar": ("sugar", []),
    "pytest_trio": ("trio", []),
    "random_order": ("random_order", ["--random-order"]),
    "faker": ("faker", []),
    "inline_snapshot": ("inline_snapshot", []),
    "syrupy": ("syrupy", []),
    "time_machine": ("time_machine", []),
    "xdist": ("xdist", ["-n1"]),
    "xprocess": ("xprocess", []),
}
"""Plugin names, and the options that enable the plugins, by their module."""
AGAIN = {
    "pytest_rerunfailures": ("rerunfailures", ["--reruns=1"]),
    "pytest_retry": ("pytest-retry", ["--retries=1"]),
}
"""Plugins that rerun failed tests."""


def beside(
    pytester: pytest.Pytester, module: str, plugin: str, options: list[str], source: str = SUITE
) -> pytest.RunResult:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    # Disable other plugins, because two of them may conflict.
    pytester._monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(source)
    ours = ["-p", "pytest_fakecloud.plugin", "-p", plugin]
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *ours, *options)


@pytest.mark.parametrize("module", BESIDE)
def test_the_suite_passes(module: str, pytester: pytest.Pytester) -> None:
    plugin, options = BESIDE[module]
    result = beside(pytester, module, plugin, options)
    assert result.parseoutcomes().get("passed") == 4
    assert result.ret == 0


@pytest.mark.parametrize("module", AGAIN)
def test_a_second_turn_has_fresh_fakes(module: str, pytester: pytest.Pytester) -> None:
    plugin, options = AGAIN[module]
    result = beside(pytester, module, plugin, options, SUITE + FLAKY)
    assert result.parseoutcomes().get("passed") == 5
    assert result.ret == 0


def test_repeated_tests_have_fresh_fakes(pytester: pytest.Pytester) -> None:
    result = beside(pytester, "pytest_repeat", "repeat", ["--count=3"])
    assert result.parseoutcomes() == {"passed": 12}
