import pytest


class Invoices:
    def __init__(self, client):
        self.client = client

    def send(self, tenant, number):
        self.client.message.publish_json(
            url="https://billing.example.com/invoice",
            body={"number": number},
            headers={"Tenant": tenant},
            retries=2,
        )


def billing(environ, start_response):
    if environ.get("HTTP_X_TENANT") is None:
        start_response("400 Bad Request", [("Content-Type", "application/json")])
        return [b'{"error": "X-Tenant is missing"}']
    start_response("200 OK", [])
    return [b""]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_an_invoice_is_sent(queue):
    queue.destinations.wsgi("https://billing.example.com", billing)
    Invoices(queue.client()).send("acme", 7)
    queue.run_until_idle()
    queue.assert_delivered("https://billing.example.com/invoice")
