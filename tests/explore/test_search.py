"""Pairs of events are counted and drawn without being created."""

from __future__ import annotations

import random

import pytest

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.explore import search


def test_many_are_drawn_one_by_one_and_each_once(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = []
    in_any_order = search._Pairs.in_any_order

    def noted(pairs: search._Pairs, chance: random.Random) -> object:
        few = [str(one) for one in in_any_order(pairs, chance)]
        with monkeypatch.context() as patch:
            patch.setattr(search, "MOST_LISTED", 0)
            drawn.append([str(one) for one in in_any_order(pairs, chance)])
        assert sorted(drawn[-1]) == sorted(few)
        with pytest.raises(IndexError):
            pairs[len(pairs)]
        return iter(())

    monkeypatch.setattr(search._Pairs, "in_any_order", noted)
    redis = kv.client()

    def run() -> None:
        for _ in range(2):
            try:
                redis.incr("n")
            except Exception:
                redis.incr("n")

    cloud.explore(run, lambda: None, kinds=("drop", "answer"), budget=20)
    assert len(drawn) == 1
    assert len(drawn[0]) > 2
