import pytest
import requests


def read_all(broker, group):
    auth = (broker.username, broker.password)
    url = f"{broker.url}/consume/{group}/w1/orders"
    return [one["value"] for one in requests.get(url, auth=auth, timeout=5).json()]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_new_group_reads_the_backlog(broker):
    broker.create_topic("orders", partitions=1)
    broker.produce("orders", "first")
    broker.produce("orders", "second")
    assert read_all(broker, "billing") == ["first", "second"]
