"""XXH3: known digests of the reference implementation, one for each way of its own."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.algorithms.xxh3 import digest

DATA = bytes(range(256)) * 8


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, b"2d06800538d394c2"),
        (1, b"c44bdff4074eecdb"),
        (3, b"5f4299fc161c9cbb"),
        (4, b"60dab036a58211f2"),
        (8, b"3a1c2d7c85af88f8"),
        (9, b"e9612598145bb9dc"),
        (16, b"8355e3a6f61770db"),
        (17, b"9ef341a99de37328"),
        (64, b"6187eb9089b0ed55"),
        (65, b"6928c76ce90422d0"),
        (128, b"85c6174c7ff4c46b"),
        (129, b"ec7642b431ba3e5a"),
        (160, b"5bea9075ec9401b8"),
        (239, b"972b14e3c46f214b"),
        (240, b"375a384d957fe865"),
        (241, b"02e8cd95421c6d02"),
        (255, b"b85fd37a0a050e63"),
        (1024, b"a870f92984398d22"),
        (1025, b"78c86e91ee939852"),
        (2048, b"dd420471ff96bd00"),
    ],
)
def test_known_digests(length: int, expected: bytes) -> None:
    assert digest(DATA[:length]) == expected
