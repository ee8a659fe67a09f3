"""Detection of assertions in the explored code."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from upstash_redis import Redis

from pytest_fakecloud import KVServer
from pytest_fakecloud.explore.subject.assertions import may_assert
from tests.explore import test_assertions


def asserts() -> None:
    assert sys.path


def calls_through_module() -> None:
    test_assertions.asserts()


class Shop:
    def __init__(self, total: int = 0) -> None:
        self.total = total

    def check(self) -> None:
        assert self.total >= 0

    @staticmethod
    def check_all() -> None:
        asserts()

    def buy(self) -> None:
        self.check()

    def look(self) -> int:
        return self.total


class Mall:
    def __init__(self) -> None:
        self.shop = Shop()

    def buy(self) -> None:
        self.shop.check()

    def __call__(self) -> None:
        asserts()


shop = Shop()


@contextmanager
def checked() -> Iterator[None]:
    yield
    assert sys.path


class Checked:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        asserts()


def uses_context() -> None:
    with checked():
        pass


def uses_context_object() -> None:
    with Checked():
        pass


def in_inner_function() -> list[None]:
    return [asserts() for _ in range(2)]  # type: ignore[func-returns-value]


def by_another_name(kv: KVServer) -> None:
    kv.assert_called("SET")


@pytest.mark.parametrize(
    "function",
    [
        asserts, calls_through_module, partial(asserts), shop.buy, Mall().buy, Mall(),
        lambda: shop.buy(), lambda: Shop().check(), Shop.check_all, uses_context,
        uses_context_object, in_inner_function, by_another_name,
        lambda: pytest.fail("no"),
    ],
)  # fmt: skip
def test_assertions_are_found(function: Callable[..., object]) -> None:
    assert may_assert(function)


def all_of(values: list[int]) -> bool:
    return all(values) and any(values) and tuple(values) != ()


@pytest.mark.parametrize("function", [all_of, shop.look, lambda: shop.look(), print])
def test_code_without_assertions_is_recognised(function: Callable[..., object]) -> None:
    assert not may_assert(function)


def test_assertions_within_a_client_do_not_count(redis: Redis) -> None:
    assert not may_assert(redis.ping)
    assert not may_assert(lambda: redis.set("k", "v"))


def test_constants_other_than_assertion_errors_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.14 on, ``all`` and ``AssertionError`` are loaded by the same instruction."""
    instruction = next(iter(dis.get_instructions(all_of)))
    substitute = instruction._replace(opname="LOAD_COMMON_CONSTANT", argval=3, argrepr="all")
    monkeypatch.setattr(dis, "get_instructions", lambda code: [substitute])
    assert not may_assert(all_of)
    substitute = substitute._replace(argval=0, argrepr="AssertionError")
    assert may_assert(all_of)
