import json

import pytest


class Tracker:
    """Follows parcels by the scans of their barcodes."""

    def __init__(self, broker, redis):
        self.http, self.redis = broker.client(), redis

    def scanned(self, scan, parcel, place):
        value = json.dumps({"parcel": parcel, "place": place})
        self.http.post("/produce/scans", json={"key": scan, "value": value})

    def follow(self):
        while records := self.http.get("/consume/trackers/t1/scans").json():
            for record in records:
                scan = json.loads(record["value"])
                self.redis.hset("parcels", scan["parcel"], scan["place"])


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_parcel_is_where_it_was_scanned_last(broker, kv_server):
    broker.create_topic("scans", partitions=3)
    broker.join("trackers", "t1", ["scans"], auto_offset_reset="earliest")
    tracker = Tracker(broker, kv_server.client())
    tracker.scanned("sc-107", "P-17", "Bonn")
    tracker.scanned("sc-101", "P-17", "Kiel")
    tracker.scanned("sc-110", "P-17", "Ulm")
    tracker.scanned("sc-104", "P-17", "Jena")
    tracker.follow()
    assert kv_server.hash("parcels") == {"P-17": "Jena"}
