"""A checkout that stands on four services: a cart, a catalogue, an order log, a delayed e-mail."""

import json
from dataclasses import dataclass
from typing import Any

import requests
from qstash import QStash
from upstash_redis import Redis
from upstash_vector import Index

CART_SECONDS = 3600


class CartExpired(Exception):
    """The cart was left alone for too long."""


@dataclass
class Checkout:
    """The application: all it knows of the world are clients and addresses."""

    redis: Redis
    catalogue: Index
    log_url: str
    log_auth: tuple[str, str]
    queue: QStash
    mailer_url: str
    mail_callback_url: str

    def suggest(self, wish: str) -> str:
        """The id of the product nearest to a wish."""
        hits = self.catalogue.query(data=wish, top_k=1, filter="stock > 0")
        return str(hits[0].id)

    def add_to_cart(self, customer: str, product: str) -> None:
        """Put a product into the cart; the cart lives an hour from its last change."""
        pipeline = self.redis.pipeline()
        pipeline.hincrby(f"cart:{customer}", product, 1)
        pipeline.expire(f"cart:{customer}", CART_SECONDS)
        pipeline.exec()

    def buy(self, customer: str) -> dict[str, Any]:
        """Turn the cart into an order in the log, and plan the e-mail that asks for a review."""
        cart = self.redis.hgetall(f"cart:{customer}")
        if not cart:
            raise CartExpired(customer)
        order = {"customer": customer, "items": {name: int(n) for name, n in cart.items()}}
        answer = requests.post(
            f"{self.log_url}/produce/orders",
            json={"key": customer, "value": json.dumps(order)},
            auth=self.log_auth,
            timeout=5,
        )
        answer.raise_for_status()
        self.redis.delete(f"cart:{customer}")
        self.queue.message.publish_json(
            url=self.mailer_url,
            body={"to": customer, "subject": "How was it?"},
            delay="3d",
            callback=self.mail_callback_url,
        )
        return order
