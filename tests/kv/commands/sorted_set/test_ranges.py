"""Ranges of sorted sets that span many blocks."""

from __future__ import annotations

from tests.kv.conftest import Run


class TestLongRanges:
    """Ranges of more members than one block holds."""

    def test_ranks_and_ranges_agree(self, run: Run) -> None:
        names = [f"m{n:05}" for n in range(5000)]
        for start in range(0, 5000, 500):
            pairs = [word for name in names[start : start + 500] for word in (int(name[1:]), name)]
            run("ZADD", "z", *pairs)
        assert run("ZRANK z m03210") == 3210
        assert run("ZREVRANK z m03210") == 1789
        assert run("ZCOUNT z 100 (4100") == 4000
        assert run("ZRANGE z 4998 -1") == [b"m04998", b"m04999"]
        assert run("ZRANGE z 4000 10 BYSCORE REV LIMIT 1000 2") == [b"m03000", b"m02999"]
        assert run("ZREMRANGEBYRANK z 10 4989") == 4980
        assert run("ZCARD z") == 20
        assert run("ZRANGE z 9 10") == [b"m00009", b"m04990"]

    def test_names_of_equal_scores(self, run: Run) -> None:
        run("ZADD", "z", *[word for n in range(3000) for word in (0, f"m{n:05}")])
        assert run("ZLEXCOUNT z [m00100 (m02100") == 2000
        assert run("ZREVRANGEBYLEX z (m02000 [m00000 LIMIT 1 1") == [b"m01998"]
        assert run("ZREMRANGEBYLEX z [m00010 [m02989") == 2980
        assert run("ZCARD z") == 20
