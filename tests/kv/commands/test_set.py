"""Set commands, apart from the scenarios of real servers."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import SetReply
from tests.kv.conftest import Run


class TestChance:
    def test_different_members_for_a_count_and_repetitions_below_zero(self, run: Run) -> None:
        run("SADD", "s", *(f"m{n}" for n in range(50)))
        some = run("SRANDMEMBER s 20")
        assert len(set(some)) == 20
        many = run("SRANDMEMBER s -200")
        assert len(many) == 200
        assert len(set(many)) > 20

    def test_spop_takes_each_once(self, run: Run) -> None:
        run("SADD", "s", *(f"m{n}" for n in range(50)))
        taken = run("SPOP s 30")
        assert len(set(taken)) == 30
        assert run("SCARD s") == 20
        assert not set(taken) & set(run("SMEMBERS s"))


def test_sets_are_sets_in_resp3(run: Run) -> None:
    run("SADD s a")
    assert isinstance(run("SMEMBERS s"), SetReply)
    assert isinstance(run("SUNION s none"), SetReply)
