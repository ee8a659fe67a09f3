"""A missing extra or an invalid setting is reported in one line, without a traceback."""

from __future__ import annotations

import pytest

from ..harness import Run


@pytest.mark.parametrize(
    ("module", "settings", "line"),
    [
        ("time_machine", "process_time=True", "*needs time-machine: pip install '*[[]time]'"),
        ("trustme", "tls=True", "*needs trustme: pip install '*[[]tls]'"),
        (
            "redis",
            "kv_server={'engine': 'redis://127.0.0.1:1'}",
            "engine='redis' needs redis: pip install '*[[]redis]'",
        ),
        (
            "confluent_kafka",
            "broker={'engine': 'kafka://127.0.0.1:1'}",
            "engine='kafka' needs confluent-kafka: pip install '*[[]kafka]'",
        ),
        ("trustme", "now='soon'", "now='soon': 'soon' is not a time: *"),
    ],
)
def test_one_line(run: Run, module: str, settings: str, line: str) -> None:
    result = run(
        f"""
        import sys
        import pytest

        # What it imported before would still be found under its own name.
        for name in [name for name in sys.modules if name.startswith({module + "."!r})]:
            sys.modules[name] = None
        sys.modules[{module!r}] = None
        engines = ("pytest_fakecloud.kv.real_redis", "pytest_fakecloud.broker.real_kafka")
        for name in [name for name in sys.modules if name.startswith(engines)]:
            del sys.modules[name]
        pytestmark = pytest.mark.fakecloud({settings})

        @pytest.mark.parametrize("number", range(3))
        def test_it(kv_server, broker, number):
            pass
        """
    )
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines([f"fakecloud: {line}"])
    result.stdout.no_fnmatch_line("*Error:*")
    # Each of the three tests has one such line, among a few of pytest's own.
    assert len([outline for outline in result.outlines if outline.startswith("fakecloud: ")]) == 3
    assert not [line for line in result.outlines if line.startswith((">", "E  "))]
