import pytest


class Flags:
    def __init__(self, redis):
        self.redis = redis

    def turn(self, name, on):
        self.redis.set(f"flag:{name}", str(on))

    def is_on(self, name):
        return bool(self.redis.get(f"flag:{name}"))


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_flag_can_be_turned_off(kv_server):
    flags = Flags(kv_server.client())
    flags.turn("search", True)
    flags.turn("search", False)
    assert not flags.is_on("search")
