"""An order pipeline over a partitioned log: orders go in, a summary for the day comes out."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import requests


@dataclass(frozen=True)
class Broker:
    """Where the log is and how to get in."""

    url: str
    username: str
    password: str

    def post(self, path: str, body: object) -> Any:
        """The JSON answer to a call; errors raise with the broker's own words."""
        answer = requests.post(
            f"{self.url}/{path}", json=body, auth=(self.username, self.password), timeout=5
        )
        if not answer.ok:
            raise RuntimeError(answer.json()["error"])
        return answer.json()


def place_orders(broker: Broker, orders: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Append orders, all of a customer to one partition; their partitions and offsets."""
    messages = [
        {
            "key": order["customer"],
            "value": json.dumps(order),
            "headers": [{"key": "order-id", "value": order["id"]}],
        }
        for order in orders
    ]
    return [(m["partition"], m["offset"]) for m in broker.post("produce/orders", messages)]


def place_with_retry(broker: Broker, order: dict[str, Any]) -> None:
    """Append an order; when no answer comes, do it again, as every careful client does."""
    try:
        place_orders(broker, [order])
    except requests.ConnectionError:
        place_orders(broker, [order])


def totals_since(broker: Broker, since_ms: int, partitions: int) -> Counter[str]:
    """Money per customer from an instant on; an order that was sent twice counts once."""
    where = [{"topic": "orders", "partition": p} for p in range(partitions)]
    starts = [start for start in broker.post(f"offsets/{since_ms}", where) if start["offset"] >= 0]
    totals: Counter[str] = Counter()
    seen: set[str] = set()
    if starts:
        for message in broker.post("fetch", {"topicPartitionOffsets": starts, "timeout": 0}):
            order = json.loads(message["value"])
            if order["id"] not in seen:
                seen.add(order["id"])
                totals[order["customer"]] += order["amount"]
    return totals
