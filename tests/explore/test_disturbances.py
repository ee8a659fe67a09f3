"""Disturbances of fakes end after their span, and a repeated one starts its span again."""

from __future__ import annotations

from pytest_fakecloud import Cloud, Handle, VectorIndex
from pytest_fakecloud.explore.event_effects import Disturbances
from pytest_fakecloud.explore.world import World


def pending_after(cloud: Cloud, index: VectorIndex, seconds: int) -> list[str]:
    cloud.clock.advance(seconds)
    return [str(record["id"]) for record in index.pending()]


def test_a_repeated_hold_lasts_for_its_whole_span(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    with World(cloud) as world:
        held = Disturbances(world.clock, [index])
        held.hold(index)
        index.client().upsert([("a", [1.0, 0.0])])
        assert pending_after(cloud, index, 40) == ["a"]
        held.hold(index)
        assert pending_after(cloud, index, 40) == ["a"]
        assert pending_after(cloud, index, 20) == []


def test_the_timer_of_an_ended_hold_does_not_end_the_next_one(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    with World(cloud) as world:
        held = Disturbances(world.clock, [index])
        held.hold(index)
        cloud.clock.advance(40)
        held.end()
        held.hold(index)
        index.client().upsert([("a", [1.0, 0.0])])
        assert pending_after(cloud, index, 40) == ["a"]
        assert pending_after(cloud, index, 20) == []


def test_tokens_of_every_service_return_after_their_rotation(cloud: Cloud) -> None:
    fakes: list[Handle] = [cloud.kv_server(), cloud.vector_index(), cloud.broker(), cloud.queue()]
    before = [dict(handle.env) for handle in fakes]
    read_only = [getattr(handle, "read_only_token", None) for handle in fakes]
    with World(cloud) as world:
        rotated = Disturbances(world.clock, fakes)
        for handle in fakes * 2:
            rotated.rotate(handle)
        after = [dict(handle.env) for handle in fakes]
        assert all(old != new for old, new in zip(before, after, strict=True))
        with rotated.old_tokens():
            assert [dict(handle.env) for handle in fakes] == before
        assert [dict(handle.env) for handle in fakes] == after
        cloud.clock.advance(10)
        assert [dict(handle.env) for handle in fakes] == before
        assert [getattr(handle, "read_only_token", None) for handle in fakes] == read_only
        for handle in fakes:
            rotated.rotate(handle)
        rotated.reset()
        assert [dict(handle.env) for handle in fakes] == before
