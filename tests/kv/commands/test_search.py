"""The commands that search an index, apart from the scenarios."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.commands.search import shortest_float32


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (0.1, b"0.1"), (2.0, b"2"),
        # The nearest 32-bit float is 22.91560173..., so other digits would be farther from it.
        (22.915600823108655, b"22.915602"),
        # The nearest 32-bit float is 25.07459640..., which needs one digit less than 25.0745955.
        (25.074595466556893, b"25.074596"),
        (1e300, b"1e+300"),
    ],
)  # fmt: skip
def test_a_relevance_has_the_digits_of_its_32_bit_float(score: float, text: bytes) -> None:
    assert shortest_float32(score) == text
