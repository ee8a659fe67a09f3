"""Settings of the wrong type are refused in words, whichever way they come."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.services import SERVICES, find, handle_class
from pytest_fakecloud.settings import setting_names
from tests.harness import check_each

VALUES: tuple[Any, ...] = (
    *(5, -1, 0, 1.5, True, None, "", "x", [], [1], ["a"], {}, {"a": 1}, {"a": None}),
    *(float("nan"), 10**30),
)


@pytest.mark.parametrize("fixture", SERVICES)
def test_no_value_is_anything_but_taken_or_a_contract_error(fixture: str) -> None:
    refused = 0
    with Cloud(seed=1) as cloud:
        for name in (*setting_names(handle_class(find(fixture))), "host", "port", "token"):
            for value in VALUES:
                try:
                    cloud.start(fixture, {name: value}).close()
                except ContractError:
                    refused += 1
                except OSError:
                    assert name == "host"
    assert refused


def test_the_error_names_setting_value_and_what_is_right() -> None:
    def check(fixture: str, name: str, value: Any, text: str) -> None:
        with (
            Cloud(seed=1) as cloud,
            pytest.raises(ContractError, match=rf"(?s){name}.*{text}") as caught,
        ):
            cloud.start(fixture, {name: value})
        assert repr(value) in str(caught.value)

    check_each(
        check,
        [
            ("vector_index", "shuffle_ties", "no", "must be true or false"),
            ("vector_index", "namespaces", 5, "must be a list of texts or a mapping"),
            ("vector_index", "namespaces", [5], "must be a list of texts or a mapping"),
            ("vector_index", "dimension", 10**30, "must be at most"),
            ("broker", "webhook_drop", "x", "must be a list of texts"),
            ("broker", "errors", 5, "must be a mapping or None"),
            ("broker", "retention_bytes", "x", "must be a whole number"),
            ("broker", "engine", 5, "must be a text or None"),
            ("kv_server", "engine", [], "must be a text or None"),
            ("queue", "raise_exceptions", "False", "must be true or false"),
            ("queue", "profile", {}, "expected one of free, payg"),
            ("queue", "limits", "x", "must be a mapping or None"),
            ("kv_server", "port", 99999, r"must be 0 \(any free\) to 65535"),
            ("kv_server", "name", 5, "must be a text that is not empty"),
            ("kv_server", "token", "a\nb", "no header can hold that"),
        ],
    )


def test_what_can_be_looked_at_only_once_is_left_whole() -> None:
    with Cloud(seed=1) as cloud:
        index = cloud.vector_index(namespaces=(name for name in ("a", "b")))
        assert index.namespaces() == ["", "a", "b"]
