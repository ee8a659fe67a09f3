import json

import pytest
from checkout import CartExpired, Checkout

from pytest_fakecloud import Broker, CallbackCapture, Cloud, KVServer, Queue, VectorIndex

MAILER = "https://mailer.example.com/send"

pytestmark = pytest.mark.fakecloud(
    now="2026-01-01T09:00:00Z",
    vector_index={"dimension": 256, "embedding": True},
    broker={"topics": {"orders": 3}},
)


@pytest.fixture
def checkout(
    kv_server: KVServer,
    vector_index: VectorIndex,
    broker: Broker,
    queue: Queue,
    callback_capture: CallbackCapture,
) -> Checkout:
    catalogue = vector_index.client()
    catalogue.upsert(
        vectors=[
            ("kettle", "electric water kettle", {"stock": 4}),
            ("teapot", "porcelain teapot for black tea", {"stock": 2}),
            ("grinder", "coffee grinder", {"stock": 0}),
        ]
    )
    return Checkout(
        redis=kv_server.client(),
        catalogue=catalogue,
        log_url=broker.url,
        log_auth=(broker.username, broker.password),
        queue=queue.client(),
        mailer_url=MAILER,
        mail_callback_url=callback_capture.callback_url,
    )


def test_from_wish_to_review(
    checkout: Checkout,
    broker: Broker,
    queue: Queue,
    callback_capture: CallbackCapture,
    fakecloud: Cloud,
) -> None:
    queue.destinations.respond(MAILER, 503, 200)
    checkout.add_to_cart("ada", checkout.suggest("something for black tea"))
    fakecloud.clock.advance("59m")
    checkout.buy("ada")

    record = broker.records("orders").only()
    assert json.loads(record.value) == {"customer": "ada", "items": {"teapot": 1}}
    assert record.key == "ada"

    assert fakecloud.clock.advance("2d23h") == []
    queue.run_until_idle()
    assert [capture.status for capture in callback_capture.callbacks()] == [503, 200]
    assert fakecloud.clock.now().date().isoformat() == "2026-01-04"


def test_a_cart_left_alone_is_gone_and_nothing_is_ordered(
    checkout: Checkout, broker: Broker, queue: Queue, fakecloud: Cloud
) -> None:
    checkout.add_to_cart("ada", "kettle")
    fakecloud.clock.advance("1h")
    with pytest.raises(CartExpired):
        checkout.buy("ada")
    assert broker.records("orders") == []
    queue.assert_published(times=0)


def test_when_the_log_is_down_the_cart_stays(
    checkout: Checkout, broker: Broker, kv_server: KVServer
) -> None:
    checkout.add_to_cart("ada", "kettle")
    broker.faults.respond(503, {"error": "coordinator loading", "status": 503}, times=1)
    with pytest.raises(Exception, match="503"):
        checkout.buy("ada")
    assert kv_server.value("cart:ada") == {"kettle": "1"}
