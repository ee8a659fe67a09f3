"""The HyperLogLog representation: hash, opcodes, estimate."""

from __future__ import annotations

import random

import pytest

from pytest_fakecloud.kv.commands import hyperloglog as hll
from pytest_fakecloud.kv.commands.hyperloglog import REGISTERS, estimate
from pytest_fakecloud.kv.errors import CommandError

SPARSE = hll.new_sparse()
DENSE = hll.to_dense(SPARSE)


@pytest.mark.parametrize(
    ("element", "index", "zeros"),
    [
        (b"", 5938, 2), (b"a", 12711, 2), (b"12345678", 10579, 3), (b"hello world", 9399, 4),
        (b"\xff\x00\x80 nine...", 10257, 1),
    ],
)  # fmt: skip
def test_elements_fall_where_the_server_puts_them(element: bytes, index: int, zeros: int) -> None:
    """PFDEBUG GETREG of Redis 7.0.15 after PFADD of this element alone."""
    assert hll.register_of(element) == (index, zeros)


def test_an_empty_value() -> None:
    assert b"HYLL\x01" + bytes(11) + b"\x7f\xff" == SPARSE
    assert hll.describe(SPARSE) == "Z:16384"
    assert hll.cached_count(SPARSE) == (0, SPARSE)


def test_sparse_and_dense_hold_the_same_registers() -> None:
    rng = random.Random(5)
    elements = [b"%d" % rng.getrandbits(50) for _ in range(600)]
    sparse, _ = hll.add(SPARSE, elements, 10**6)
    dense, _ = hll.add(DENSE, elements, 10**6)
    plain = bytearray(REGISTERS)
    for index, rank in map(hll.register_of, elements):
        plain[index] = max(plain[index], rank)
    assert not hll.is_dense(sparse)
    assert hll.registers(sparse) == hll.registers(dense) == plain
    assert hll.cached_count(sparse)[0] == hll.cached_count(dense)[0]
    assert hll.to_dense(sparse) == dense


@pytest.mark.parametrize(("many", "most"), [(40, 50), (300, 3000), (700, 1200), (700, 16000)])
def test_adding_many_at_once_is_adding_one_by_one(many: int, most: int) -> None:
    """The bytes are equal: the opcodes are in the order of the elements."""
    rng = random.Random(many)
    elements = [b"%d" % rng.getrandbits(50) for _ in range(many)]
    single = SPARSE
    for element in elements:
        single, _ = hll.add(single, (element,), most)
    together, _ = hll.add(SPARSE, elements, most)
    assert together == single


def test_the_largest_of_each_register() -> None:
    rng = random.Random(2)
    elements = [[rng.randbytes(8) for _ in range(3000)] for _ in range(3)]
    values = [hll.add(DENSE, element, 0)[0] for element in elements]
    registers = [hll.registers(value) for value in values]
    assert hll.register_maxima(values) == bytearray(map(max, *registers))
    assert hll.register_maxima([]) == bytearray(REGISTERS)
    top = DENSE[: hll.HEADER_SIZE].ljust(hll.DENSE_SIZE, b"\xff")
    assert hll.register_maxima([*values, top]) == bytearray(b"\x3f" * REGISTERS)


def test_merging_is_adding_to_one() -> None:
    left, right, both = (
        hll.add(SPARSE, (b"%d" % n for n in numbers), 3000)[0]
        for numbers in (range(200), range(150, 400), range(400))
    )
    for dense in (False, True):
        merged = hll.merge(left, hll.register_maxima([left, right]), dense, 3000)
        assert hll.registers(merged) == hll.registers(both)
        assert hll.is_dense(merged) == dense


def test_the_count_is_kept_until_something_changes() -> None:
    value, changed = hll.add(SPARSE, [b"a"], 3000)
    assert changed
    assert value[15] & 0x80
    cardinality, cached = hll.cached_count(value)
    assert cardinality == 1
    assert cached[8:16] == (1).to_bytes(8, "little")
    assert hll.add(cached, [b"a"], 3000) == (cached, False)


@pytest.mark.parametrize("many", [1, 2, 64, 1024, 20000])
def test_the_estimate_is_close(many: int) -> None:
    value, _ = hll.add(DENSE, (b"%d" % n for n in range(many)), 3000)
    assert hll.cached_count(value)[0] == pytest.approx(many, rel=0.02)


@pytest.mark.parametrize(
    "value",
    [b"", b"HYLL", b"HYLL\x02" + bytes(20), b"XYLL\x01" + bytes(20), b"HYLL\x00" + bytes(20)],
)
def test_other_strings_are_not_taken_for_one(value: bytes) -> None:
    assert not hll.is_hyperloglog(value)


def test_the_estimate_of_registers_that_no_count_gives() -> None:
    assert estimate(bytes(REGISTERS)) == 0
    # Half of the registers have their highest value; the others still count.
    high, low = bytes([51]) * (REGISTERS // 2), bytes([1]) * (REGISTERS // 2)
    assert estimate(high + low) > estimate(bytes([1]) * REGISTERS)
    assert estimate(bytes([51]) * REGISTERS) == -(2**63)
    registers = bytes([0b11_110011, 0b00_111100, 0b110011_11]) * 4096
    value = hll.mark_stale(DENSE[: hll.HEADER_SIZE]) + registers
    for _ in range(2):  # computed, then cached
        cardinality, value = hll.cached_count(value)
        assert cardinality == -(2**63)


@pytest.mark.parametrize("opcodes", [b"", b"\x00", b"\x7f", b"\x80"])
def test_opcodes_that_end_too_early(opcodes: bytes) -> None:
    elements = [b"%d" % number for number in range(50)]
    with pytest.raises(CommandError, match="INVALIDOBJ"):
        hll.add(SPARSE[: hll.HEADER_SIZE] + opcodes, elements, 3000)
