"""The promise ``isolated()``, on histories of each anomaly and on serializable ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import (
    Cloud,
    ContractError,
    History,
    KVServer,
    drawn,
    isolated,
    observed,
    operations,
    transactions,
)
from pytest_fakecloud.explore.guests.isolation import LEVELS, Level
from pytest_fakecloud.explore.values.history import Operation

from .conftest import failure

ABORTED, UNKNOWN = None, "unknown"


def transaction(client: str, text: str, began: int, ended: int, outcome: Any = True) -> Operation:
    """Return a transaction such as ``"x+1 x:1,2 y=3 y?4"``: append, read a list, write, read."""
    steps: list[tuple[Any, ...]] = []
    answers: list[Any] = []
    for word in text.split():
        key, sign, rest = word[0], word[1], word[2:]
        numbers = [int(number) for number in rest.split(",") if number]
        if sign in ":?":
            steps.append(("read", key))
            answers.append(numbers if sign == ":" else next(iter(numbers), None))
        else:
            steps.append(("append" if sign == "+" else "write", key, *numbers))
            answers.append(None)
    if outcome is UNKNOWN:
        return Operation(client, "run", (steps,), {}, began, None, None, OSError("lost"))
    return Operation(client, "run", (steps,), {}, began, ended, answers if outcome else None)


def check(level: Level, *texts: str, **outcomes: Any) -> None:
    """Check transactions, of which all overlap."""
    history = History(cloud=None, schedule="")  # type: ignore[arg-type]
    for number, text in enumerate(texts, 1):
        outcome = outcomes.get(f"t{number}", True)
        history.operations.append(transaction(f"c{number}", text, number, 100 + number, outcome))
    isolated("run", level)(history)


@pytest.mark.parametrize(
    ("name", "level", "texts"),
    [
        ("G0", "read uncommitted", ["x+1 y+2", "x+3 y+4", "x:1,3 y:4,2"]),
        ("G1b", "read committed", ["x+1 x+2", "x:1"]),
        ("G1b", "read committed", ["x=1 x=2", "x?1"]),
        ("G1c", "read committed", ["x+1 y:2", "y+2 x:1"]),
        ("G1c", "read committed", ["x=1 y?2", "y=2 x?1"]),
        ("G-single", "snapshot isolation", ["x+1 y+2", "x:1 y:", "y:2"]),
        ("G-single", "snapshot isolation", ["x=1 y=2", "x?1 y?"]),
        ("G-single", "snapshot isolation", ["x=1", "x?1 x=2 y=3", "x?1 y?3"]),
        ("lost update", "snapshot isolation", ["x: x+1", "x: x+2", "x:1,2"]),
        ("lost update", "snapshot isolation", ["x=1", "x?1 x=2", "x?1 x=3"]),
        ("G2", "serializable", ["x: y+1", "y: x+2", "x:2 y:1"]),
        ("G2", "serializable", ["x? y=1", "y? x=2"]),
    ],
)
def test_the_level_that_forbids_an_anomaly(name: str, level: Level, texts: list[str]) -> None:
    position = LEVELS.index(level)
    for weaker in LEVELS[:position]:
        check(weaker, *texts)
    for stronger in LEVELS[position:]:
        with pytest.raises(AssertionError, match=f"^not {stronger}: {name}"):
            check(stronger, *texts)


def test_reads_of_aborted_transactions() -> None:
    check("read uncommitted", "x+1", "x:1", t1=ABORTED)
    with pytest.raises(AssertionError, match=r"G1a.*T2 read x with 1, which T1 did not keep"):
        check("read committed", "x+1", "x:1", t1=ABORTED)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("T1 read x = .2. after it appended .1.", ["x+1 x:2", "x+2"]),
        ("T1 read x = 2 after it wrote 1", ["x=1 x?2", "x=2"]),
        ("T2 read 7 in x, which nobody wrote", ["x+1", "x:1,7"]),
        ("T2 read an element of x twice: .1, 1.", ["x+1", "x:1,1"]),
        ("T4 read x = .2., and another read returned .1, 2.", ["x+1", "x+2", "x:1,2", "x:2"]),
    ],
)
def test_reads_that_every_level_forbids(text: str, texts: list[str]) -> None:
    for level in LEVELS:
        with pytest.raises(AssertionError, match=text):
            check(level, *texts)


@pytest.mark.parametrize("text", ["x:", "x:1"])
def test_transactions_with_exceptions_may_have_taken_effect(text: str) -> None:
    check("strict serializable", "x+1", text, t1=UNKNOWN)


def test_transactions_with_exceptions_are_atomic() -> None:
    with pytest.raises(AssertionError, match="G-single"):
        check("serializable", "x+1 y+2", "x:1 y:", "y:2", t1=UNKNOWN)
    check("serializable", "x=1 y=2", "x? y?", t1=UNKNOWN)


def test_real_time_counts_for_strict_serializability() -> None:
    history = History(cloud=None, schedule="")  # type: ignore[arg-type]
    history.operations += [
        transaction("a", "x=1", 0, 1),
        transaction("b", "x?", 2, 3),
        transaction("b", "x?1", 4, 5),
    ]
    isolated("run")(history)
    with pytest.raises(AssertionError, match="T1 ended before T2 began, and T2 read x before T1"):
        isolated("run", "strict serializable")(history)


def test_the_message_explains_the_cycle() -> None:
    with pytest.raises(AssertionError) as raised:
        check("serializable", "x? y=1", "y? x=2")
    assert str(raised.value) == (
        "not serializable: G2 (write skew): T1 read x before T2 wrote 2, and T2 read y before T1 "
        "wrote 1\n"
        "  T1 = c1: run([('read', 'x'), ('write', 'y', 1)]) -> [None, None]\n"
        "  T2 = c2: run([('read', 'y'), ('write', 'x', 2)]) -> [None, None]"
    )


@pytest.mark.parametrize("seed", range(30))
def test_serial_histories_have_no_anomaly(seed: int) -> None:
    chance = random.Random(seed)
    lists: dict[str, list[int]] = {"x": [], "y": []}
    registers: dict[str, int | None] = {"u": None, "v": None}
    history = History(cloud=None, schedule="")  # type: ignore[arg-type]
    value = 0
    for number in range(chance.randint(5, 25)):
        words, undo = [], ({k: [*v] for k, v in lists.items()}, dict(registers))
        for _ in range(chance.randint(1, 4)):
            key, is_read, value = chance.choice("xyuv"), chance.random() < 0.5, value + 1
            if key in lists and is_read:
                words.append(f"{key}:{','.join(map(str, lists[key]))}")
            elif key in lists:
                words.append(f"{key}+{value}")
                lists[key].append(value)
            elif is_read:
                words.append(f"{key}?{registers[key] or ''}")
            else:
                words.append(f"{key}={value}")
                registers[key] = value
        outcome = chance.choice([True, True, True, ABORTED, UNKNOWN])
        if outcome is ABORTED or (outcome is UNKNOWN and chance.random() < 0.5):
            lists, registers = undo
        # Each transaction takes effect at 10 times its number, within its time.
        began, ended = number * 10 - chance.randint(0, 40), number * 10 + chance.randint(1, 40)
        history.operations.append(transaction("c", " ".join(words), began, ended, outcome))
    chance.shuffle(history.operations)
    for level in LEVELS:
        isolated("run", level)(history)


@pytest.mark.parametrize(
    ("steps", "answers", "text"),
    [
        ("xy", [], "is no transaction: call the function with one argument"),
        ([("read", "x")], [], "must return a list with an answer for each of its 1 steps"),
        ([("get", "x")], [1], "is not a step: write"),
        ([("append", "x")], [1], "is not a step: write"),
        ([("append", "x", 1), ("append", "x", 1)], [0, 0], "1 is written to x twice"),
        ([("append", "x", 1), ("write", "x", 2)], [0, 0], "x is both a list and a register"),
    ],
)
def test_operations_that_are_no_transactions(steps: Any, answers: Any, text: str) -> None:
    history = History(cloud=None, schedule="")  # type: ignore[arg-type]
    history.operations.append(Operation("a", "run", (steps,), {}, 0, 1, answers))
    with pytest.raises(ContractError, match=text):
        isolated("run")(history)


def test_mistakes_in_arguments() -> None:
    with pytest.raises(ContractError, match="the name of an operation"):
        isolated(3)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="did you mean 'serializable'"):
        isolated("run", "serialisable")  # type: ignore[arg-type]


@pytest.mark.parametrize("is_atomic", [True, False], ids=["MULTI", "single commands"])
def test_drawn_transactions(cloud: Cloud, kv: KVServer, redis: Redis, is_atomic: bool) -> None:
    @observed
    def transact(steps: list[tuple[Any, ...]]) -> list[Any]:
        batch = redis.multi() if is_atomic else redis
        answers: list[Any] = []
        for kind, key, *values in steps:
            if kind == "read":
                answers.append(batch.lrange(key, 0, -1))
            else:
                answers.append(batch.rpush(key, *values))
        if is_atomic:
            answers = batch.exec()
        return [
            [int(element) for element in answer] if isinstance(answer, list) else answer
            for answer in answers
        ]

    client = operations(drawn(transact, steps=transactions(lists=["x", "y"])), most=2)
    run = {"ann": client, "bob": client}
    promise = isolated("transact", "strict serializable")
    if is_atomic:
        cloud.explore(run, promise, kinds=("switch", "late"), budget=100)
        # A client repeats a request whose answer is lost, and so appends twice.
        failure(cloud, run, promise, kinds="lose_response", match="read an element of|G1c")
        return
    error = failure(cloud, run, promise, kinds="switch", match="not strict serializable: ")
    steps = [len(a["steps"]) for calls in error.inputs.values() for _, a in calls]
    assert sum(steps) <= 5
