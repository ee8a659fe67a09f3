"""The settings of all fakes: their types for type checkers, and the errors about wrong values."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import pytest_fakecloud
from pytest_fakecloud import Cloud
from pytest_fakecloud.broker.settings import BrokerConfig, BrokerLimits
from pytest_fakecloud.cloud.services import SERVICES, fake_class, find
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.settings import Setting, read, settings_of
from pytest_fakecloud.kv.settings import KVConfig
from tests.misuse import KINDS
from tests.stubs import PACKAGE

ENGINES = {"kv_server": "redis://h", "broker": "kafka://h"}
"""Addresses of real servers, which no test connects to, by fixture."""


@pytest.mark.parametrize("fixture", SERVICES)
def test_type_checkers_know_the_settings_that_are_read(fixture: str) -> None:
    """Compare the keywords of each fake in the stub with the class that declares its settings."""
    declared = settings_of(fake_class(find(fixture))._config_class)
    parameter = getattr(Cloud, fixture).__annotations__["settings"]
    name = parameter.removeprefix("Unpack[").removesuffix("]")
    typed = getattr(pytest_fakecloud, name)
    assert get_type_hints(typed) == {
        name: setting.kind.accepts for name, setting in declared.items()
    }
    assert not typed.__required_keys__
    if (service := find(fixture).word) is not None:
        stub = PACKAGE / "_typing" / f"{service}.pyi"
        (stub_class,) = (
            node
            for node in ast.parse(stub.read_text("utf-8")).body
            if isinstance(node, ast.ClassDef) and node.name == name
        )
        keywords = [
            ast.unparse(node.target) for node in stub_class.body if isinstance(node, ast.AnnAssign)
        ]
        assert keywords == list(declared)


@pytest.mark.parametrize("fixture", SERVICES)
def test_no_value_is_anything_but_taken_or_a_contract_error(fixture: str) -> None:
    rejected = 0
    shown = [value for kind, value in KINDS.items() if kind != "unshowable"]
    with Cloud(seed=1) as cloud:
        for name in settings_of(fake_class(find(fixture))._config_class):
            for value in (*shown, 0, 10**30, {"a": None}):
                try:
                    getattr(cloud, fixture)(**{name: value}).close()
                except ContractError:
                    rejected += 1
                except (OSError, TypeError):
                    assert name == "host"  # the operating system decides
    assert rejected


@pytest.mark.parametrize("fixture", ENGINES)
def test_settings_that_the_chosen_engine_ignores_are_rejected(fixture: str) -> None:
    declared: Any = fake_class(find(fixture))._config_class
    for name, setting in settings_of(declared).items():
        value = _other(name, setting)
        for chosen, engine in (("memory", None), ("real", ENGINES[fixture])):
            try:
                read(declared, {"engine": engine, name: value}, fixture)
                error = ""
            except ContractError as caught:
                error = str(caught)
            ignores = setting.engines not in (chosen, "both")
            assert ignores == error.startswith(f"{name} applies only to"), name


def _other(name: str, declared: Setting) -> Any:
    """Return a valid value of a setting that is not its default."""
    default = declared.kind.read(name, declared.default)
    parts = get_args(declared.kind.accepts)
    words = [word for part in parts for word in get_args(part)]  # A Literal inside a union.
    others = (False, 5, "7.2", ["ReJSON"], BrokerLimits(retention_ms=5))
    for value in (*parts, *words, *others, *KINDS.values()):
        with contextlib.suppress(ContractError):
            if declared.kind.read(name, value) != default:
                return value
    raise AssertionError(f"no valid value of {name}: add one to `others`")


def test_limits_that_a_real_cluster_ignores_are_rejected() -> None:
    for name, setting in settings_of(BrokerLimits).items():
        limits = BrokerLimits(**{name: 5})
        BrokerConfig(limits=limits)
        if setting.engines == "memory":
            with pytest.raises(ContractError, match=rf"limits\.{name} applies only to"):
                BrokerConfig(limits=limits, engine="kafka://h")
        else:
            BrokerConfig(limits=limits, engine="kafka://h")


@pytest.mark.parametrize("declared", [KVConfig, BrokerConfig, BrokerLimits])
def test_settings_of_both_engines_are_read_outside_the_one_in_memory(declared: Any) -> None:
    """A setting that only modules of the in-memory engine mention cannot apply to a real server."""
    service = Path(inspect.getfile(declared)).parent
    texts = [
        file.read_text("utf-8")
        for file in service.rglob("*.py")
        if file.parent != service / "engine" and file.name != "settings.py"
    ]
    for setting in settings_of(declared).values():
        name = re.compile(rf"\b{setting.attribute}\b")
        assert setting.engines == "memory" or any(map(name.search, texts)), setting.attribute


def test_what_can_be_looked_at_only_once_is_left_whole() -> None:
    with Cloud(seed=1) as cloud:
        index = cloud.vector_index(namespaces=(name for name in ("a", "b")))
        assert index.namespaces() == ["", "a", "b"]
