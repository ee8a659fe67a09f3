"""Test third-party JavaScript libraries on the fakes, in Node: `js_libraries/libraries.test.mjs`.

They are skipped unless ``npm install --legacy-peer-deps --prefix tests/clients/js_libraries`` has
installed the libraries, which are many.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_fakecloud import Cloud

from . import node

pytestmark = pytest.mark.slow
FOLDER = node.HERE.with_name("js_libraries")
STORES: dict[str, dict[str, Any]] = {
    "vendor": {},
    "redis": {"dialect": "redis", "modules": ["ReJSON"]},
}


@pytest.mark.parametrize("dialect", STORES)
def test_libraries(dialect: str) -> None:
    node.need(
        *json.loads((FOLDER / "package.json").read_text("utf-8"))["dependencies"], folder=FOLDER
    )
    with Cloud(seed=1) as cloud:
        store = cloud.kv_server(**STORES[dialect])
        index = cloud.vector_index(embedding=True)
        places = {
            "url": store.url,
            "token": store.token,
            "databaseUrl": store.database_url,
            "vector": {"url": index.url, "token": index.token},
        }
        words = {"flush": lambda: store.execute("FLUSHALL"), "advance": cloud.clock.advance}
        with node.control(words) as control:
            environment = {"FAKE_LIBRARIES": json.dumps(places), **control}
            outcome = node.run("libraries.test.mjs", environment, folder=FOLDER)
        assert outcome.passed == 13
        assert cloud.violations() == []
