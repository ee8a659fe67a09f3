"""Drawn inputs: bugs that only some of them show, shrinking, replays, and choices without Hypothesis."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis

from pytest_fakecloud import (
    BrokenPromiseError,
    Cloud,
    ContractError,
    History,
    KVServer,
    drawn,
    linearizable,
    observed,
    operations,
    replay_schedule,
    transactions,
)
from pytest_fakecloud.explore.guests.inputs.drawing import Drawing, distinct_inputs

from .conftest import failure, holds


@pytest.fixture
def pay(redis: Redis) -> Callable[..., None]:
    """Pays an amount; a large one reads the balance and writes it in two commands."""

    def pay(amount: int) -> None:
        if amount < 100:
            redis.incrby("balance", amount)
        else:
            redis.set("balance", int(redis.get("balance") or 0) + amount)

    return pay


def sums_up(kv: KVServer) -> Callable[[History], None]:
    """Return a check that the balance contains all amounts."""

    def check(history: History) -> None:
        amounts = [
            arguments["amount"]
            for client, calls in history.inputs.items()
            if client in history.results
            for _, arguments in calls
            if arguments
        ]
        if len(history.results) == len(history.inputs):
            assert int(kv.value("balance") or 0) == sum(amounts)

    return check


@pytest.mark.parametrize(
    ("amounts", "smallest"),
    [([1, 7, 100, 250, 9000], 100), (st.integers(min_value=0, max_value=10_000), 100)],
    ids=["choices", "strategy"],
)
def test_amount_and_schedule_are_shrunk_together(
    cloud: Cloud, kv: KVServer, redis: Redis, pay: Any, amounts: Any, smallest: int
) -> None:
    def look() -> Any:
        return redis.get("balance")

    client = operations([drawn(pay, amount=amounts), look])
    run = {"ann": client, "bob": client}
    error = failure(cloud, run, sums_up(kv), kinds="switch", match="drawn input")
    first, second = error.inputs.values()
    assert len(error.disturbances) == 1
    assert len(first) == len(second) == 1
    assert {name for [(name, _)] in error.inputs.values()} == {"pay"}
    assert smallest in (first[0][1]["amount"], second[0][1]["amount"])
    assert f"inputs: ann: pay(amount={first[0][1]['amount']}); bob: pay(" in str(error)
    replay = f'replay_schedule("{error.schedule}", inputs={error.inputs!r})'
    assert f"replay it with @pytest_fakecloud.{replay}" in str(error)

    @eval(replay, {"replay_schedule": replay_schedule})
    def again() -> None:
        cloud.explore(run, sums_up(kv))

    with pytest.raises(BrokenPromiseError) as replayed:
        again()
    assert (replayed.value.schedule, replayed.value.inputs) == (error.schedule, error.inputs)
    assert replayed.value.story == error.story


@pytest.mark.parametrize("seed", [14, 22])
def test_fewer_operations_with_other_arguments_are_drawn(
    cloud: Cloud, kv: KVServer, redis: Redis, seed: int
) -> None:
    """Two deposits of 10 and a withdrawal of 20 also fail, and none of the three can be left out."""

    def deposit(amount: int) -> None:
        redis.incrby("balance", amount)

    def withdraw(amount: int) -> None:
        if int(redis.get("balance") or 0) >= amount:
            redis.decrby("balance", amount)

    def check() -> None:
        assert int(kv.value("balance") or 0) >= 0

    client = operations(
        {
            "deposit": drawn(deposit, amount=[10, 50]),
            "withdraw": drawn(withdraw, amount=[1, 20, 50]),
        }
    )
    error = failure(
        cloud,
        {"ann": client, "bob": client},
        check,
        seed=seed,
        kinds=("switch", "lose_response"),
        match="drawn input",
    )
    calls = [call for calls in error.inputs.values() for call in calls]
    assert calls == [("deposit", {"amount": 50}), ("withdraw", {"amount": 50})]
    assert len(error.disturbances) == 1


@pytest.mark.parametrize("seed", [10, 18])
def test_fewer_operations_are_drawn_if_only_a_pause_breaks_them(
    cloud: Cloud, kv: KVServer, redis: Redis, seed: int
) -> None:
    def deposit(amount: int) -> None:
        redis.incrby("balance", amount)

    def withdraw(amount: int) -> None:
        began = time.time()
        if int(redis.get("balance") or 0) >= amount:
            redis.decrby("balance", amount)
            if time.time() - began >= 1:
                redis.decrby("balance", amount)

    def check() -> None:
        assert int(kv.value("balance") or 0) >= 0

    client = operations(
        {"deposit": drawn(deposit, amount=[10, 50]), "withdraw": drawn(withdraw, amount=[20, 50])}
    )
    error = failure(cloud, {"ann": client}, check, seed=seed, kinds="tick", match="drawn input")
    assert [name for name, _ in error.inputs["ann"]] == ["deposit", "withdraw"]
    assert len(error.disturbances) == 1


def test_equal_seeds_find_equal_failures(cloud: Cloud, kv: KVServer, pay: Any) -> None:
    client = operations([drawn(pay, amount=st.integers(0, 500))], most=2)
    run = {"ann": client, "bob": client}
    first, second = (
        failure(cloud, run, sums_up(kv), seed=3, processes=processes) for processes in (1, 2)
    )
    assert (first.inputs, first.schedule, first.tried) == (
        second.inputs,
        second.schedule,
        second.tried,
    )


def test_only_one_order_of_operations_breaks_the_undisturbed_run(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def add() -> None:
        redis.rpush("basket", "tea")

    def remove() -> None:
        redis.delete("basket", "paid")

    def pay() -> None:
        redis.set("paid", "1")

    def check() -> None:
        assert not kv.value("paid") or kv.value("basket"), "an empty basket is paid"

    error = failure(cloud, operations([add, remove, pay]), check, match="the undisturbed trial")
    assert error.inputs == {"client": [("pay", {})]}
    with pytest.raises(BrokenPromiseError, match="paid"):
        cloud.explore(operations([add, pay]), check, schedule="", inputs=error.inputs)


def test_disturbances_move_with_operations_that_are_left_out(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def read() -> None:
        redis.get("a")

    def move() -> None:
        redis.delete("a")
        redis.set("b", "1")

    def check() -> None:
        assert kv.value("a") or kv.value("b"), "the value is lost"

    kv.load({"a": "1"})
    error = failure(cloud, operations({"look": read, "move": move}), check)
    assert error.inputs == {"client": [("move", {})]}
    assert error.schedule == "client.2 crash"


def test_asynchronous_operations(cloud: Cloud, kv: KVServer) -> None:
    async def add(amount: int) -> int:
        async with AsyncRedis(kv.url, kv.token) as client:
            return await client.incrby("n", amount)

    def check(history: History) -> None:
        for client, results in history.results.items():
            assert isinstance(results, list)
            assert len(results) == len(history.inputs[client])

    result = cloud.explore(
        {"ann": operations(drawn(add, amount=[1, 2]), most=2)}, check, budget=60, trust=False
    )
    assert result.inputs == 6


def test_observed_operations_are_checked_against_a_model(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    class Box:
        def __init__(self) -> None:
            self.number = 0

        def put(self, number: int) -> None:
            self.number = max(self.number, number)

        def get(self) -> int:
            return self.number

    @observed
    def put(number: int) -> None:
        if int(redis.get("box") or 0) < number:
            redis.set("box", number)

    @observed
    def get() -> int:
        return int(redis.get("box") or 0)

    client = operations([drawn(put, number=st.integers(1, 4)), get], most=3)
    error = failure(cloud, {"ann": client, "bob": client}, linearizable(Box), kinds="switch")
    numbers = [a["number"] for calls in error.inputs.values() for _, a in calls if a]
    assert sorted(numbers) == [1, 2]


def test_all_inputs_are_tried_if_there_are_few(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def put(name: str) -> None:
        redis.set(name, "1")

    def check(history: History) -> None:
        name = history.inputs["put"]["name"]
        assert kv.value(name) or history.errors or history.crashed

    result = cloud.explore(drawn(put, name=["a", "b", "c"]), check, budget=300)
    assert result.inputs == 3
    assert " s (3 drawn inputs, all " in str(result)


def test_inputs_without_calls_are_skipped(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def put(number: int) -> None:
        if number:
            redis.set("n", number)

    cloud.explore(drawn(put, number=[0, 1]), holds, budget=40, trust=False)


def test_errors_of_the_code_name_the_inputs(cloud: Cloud, redis: Redis) -> None:
    def put(number: int) -> None:
        redis.set("n", 10 // number)

    with pytest.raises(ZeroDivisionError) as raised:
        cloud.explore(drawn(put, number=[1, 0]), holds)
    assert "inputs: put: number=0" in raised.value.__notes__


def test_arguments_are_copied_for_each_run(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def put(items: list[str]) -> None:
        items.append("new")
        redis.rpush("items", *items)

    def check() -> None:
        assert kv.value("items") in (None, ["old", "new"])

    cloud.explore(drawn(put, items=[["old"]]), check, kinds="crash", budget=40)


def test_anomalies_print_the_inputs(cloud: Cloud, redis: Redis) -> None:
    def count(step: int) -> None:
        redis.set("n", int(redis.get("n") or 0) + step)

    client = drawn(count, step=[1, 2])
    error = failure(cloud, {"ann": client, "bob": client}, match="not serializable")
    assert error.inputs == {"ann": {"step": 1}, "bob": {"step": 1}}


def test_choices_do_not_need_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "hypothesis"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hypothesis", None)

    def put(name: str, number: int) -> None: ...

    client = operations([drawn(put, name=["a", "b"], number=range(3))], most=2)
    drawing = Drawing(1)
    inputs = list(distinct_inputs({"ann": client}, drawing))
    assert len(inputs) == 6 + 6 * 6
    big = [("put", {"name": "b", "number": 2})] * 2
    assert client.shrink(big, lambda calls: len(calls) > 0, drawing) == [
        ("put", {"name": "a", "number": 0})
    ]


def test_values_of_transactions_are_unique() -> None:
    choices = transactions(lists=["x"], registers=["y"], most=4)

    def transact(steps: Any) -> None: ...

    client = operations(drawn(transact, steps=choices), most=4)
    drawing = Drawing(1)
    for inputs, _ in zip(
        distinct_inputs({"a": client, "b": client}, drawing), range(50), strict=False
    ):
        steps = [step for calls in inputs.values() for _, a in calls for step in a["steps"]]
        values = [step[2] for step in steps if step[0] != "read"]
        assert len(values) == len(set(values))
        assert all(step[0] != "append" or step[1] == "x" for step in steps)
        assert all(step[0] != "write" or step[1] == "y" for step in steps)


def put(name: str, number: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda: drawn(3), "3 is not a function"),  # type: ignore[arg-type]
        (lambda: drawn(put), "cannot be called with no arguments: missing a required"),
        (lambda: drawn(put, nam=["a"]), "missing a required argument: 'name'"),
        (lambda: drawn(put, name="abc"), "name='abc' are no choices: pass a list"),
        (lambda: drawn(put, name=[]), r"name=\[\] are no choices"),
        (lambda: drawn(drawn(put, name=["a"])), "whose input is drawn already"),
        (lambda: drawn(put, name=["a"])(), "are clients of explore()"),
        (lambda: operations([]), "operations\\(\\) needs functions"),
        (lambda: operations([drawn(put, name=["a"])], most=0), "most=0 is not a number of at least 1"),
        (lambda: operations([holds, holds]), "two operations have the name holds"),
        (lambda: operations([operations([holds])]), "is not an operation: pass a function"),
        (lambda: transactions("xy"), "'xy' is not a list of keys"),
        (lambda: transactions(), "transactions\\(\\) needs keys"),
        (lambda: transactions(["a"], ["a"]), "either a list or a register"),
    ],
)  # fmt: skip
def test_mistakes_in_drawn_clients(mistake: Callable[[], object], text: str) -> None:
    with pytest.raises(ContractError, match=text):
        mistake()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schedule": "ann.1 crash"}, "needs these inputs: pass inputs="),
        ({"inputs": {}}, "do not fit: pass a dict with an entry for ann"),
        ({"inputs": {"ann": 3}}, "3 is not a list of operations"),
        ({"inputs": {"ann": ["put"]}}, "'put' is not an operation and its arguments"),
        ({"inputs": {"ann": [("pu", {})]}}, "did you mean 'put'"),
        ({"inputs": {"ann": [("put", {})]}}, "are not the drawn arguments of put"),
    ],
)
def test_inputs_that_do_not_fit(cloud: Cloud, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ContractError, match=text):
        cloud.explore({"ann": operations(drawn(put, name=["a"]))}, holds, **options)


def test_inputs_without_drawn_clients_are_an_error(cloud: Cloud) -> None:
    with pytest.raises(ContractError, match="pass none, because none are drawn"):
        cloud.explore(holds, holds, inputs={"ann": {}})


@pytest.mark.parametrize("answers", range(1, 12))
def test_shrinking_can_end_between_any_two_trials(answers: int) -> None:
    """After its time, nothing breaks the promise any more."""
    left = iter(range(answers))
    value = Drawing(1).simplest(st.integers(0, 100), 77, lambda _: next(left, None) is not None)
    assert value in range(101)
