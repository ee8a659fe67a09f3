"""A closed fake is freed at once if it was not used: it is in no circle of references."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from pytest_fakecloud import Cloud


@pytest.fixture(autouse=True)
def _garbage() -> Iterator[None]:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def left() -> Counter[str]:
    """Return the numbers of objects of this package that only the garbage collector can free."""
    gc.collect()
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    found = Counter(name for name in names if name.startswith("pytest_fakecloud."))
    gc.garbage.clear()
    return found


def kv(cloud: Cloud) -> None:
    assert cloud.kv_server().url


def vector(cloud: Cloud) -> None:
    assert cloud.vector_index(dimension=2).url


@pytest.mark.parametrize("use", [kv, vector])
def test_a_fake_that_was_not_used_leaves_nothing(use: Callable[[Cloud], None]) -> None:
    for _ in range(2):  # The first use of a library may leave something behind.
        with Cloud() as cloud:
            use(cloud)
        del cloud
        found = left()
    assert found == Counter()


def test_a_circle_would_be_found() -> None:
    cloud = Cloud()
    server = cloud.kv_server()
    server.itself = server  # type: ignore[attr-defined]
    cloud.close()
    del cloud, server
    assert left()["pytest_fakecloud.kv.handle.KVServer"] == 1
