"""Test the headers of a publish request: precedence, group defaults and redacted fields."""

from __future__ import annotations

from tests.queue.scene import DEST, Scene


def test_the_first_of_a_header_counts() -> None:
    with Scene() as scene:
        headers = [
            ("Upstash-Retries", "1"),
            ("Upstash-Retries", "2"),
            ("Upstash-Header-Forward", "true"),
            ("Upstash-Header-Forward", "false"),
            ("X-Plain", "1"),
            ("Upstash-Timeout", "7s"),
        ]
        scene.ok("POST", f"/v2/publish/{DEST}", headers=headers)
        scene.queue.run_until_idle()
        (came,) = scene.came
        assert came.headers.get("X-Plain") == "1"
        row = scene.get("/v2/events")["events"][0]
        assert (row["maxRetries"], row["timeout"]) == (1, 7000)


def test_a_group_fills_in_what_was_not_sent() -> None:
    flow = {"Upstash-Flow-Control-Key": "of-group", "Upstash-Flow-Control-Value": "parallelism=1"}
    endpoint = {"url": DEST, "name": "a"}
    with Scene() as scene:
        scene.ok("POST", "/v2/topics/g/endpoints", json={"endpoints": [endpoint]})
        pairs = {name: [value] for name, value in flow.items()}
        scene.ok("PATCH", "/v2/topics/g", json={"headers": pairs})
        scene.ok("POST", "/v2/publish/g")
        own = {**flow, "Upstash-Flow-Control-Key": "own"}
        scene.ok("POST", "/v2/publish/g", headers=own)
        scene.queue.run_until_idle()
        rows = scene.get("/v2/events?state=DELIVERED&order=earliestFirst")["events"]
        assert [row["flowControlKey"] for row in rows] == ["of-group", "own"]


def test_empty_entries_redact_nothing() -> None:
    with Scene() as scene:
        headers = {"Upstash-Redact-Fields": "body,, header[Upstash-Forward-A],"}
        scene.ok("POST", f"/v2/publish/{DEST}", headers=headers, body=b"secret")
        row = scene.get("/v2/events")["events"][0]
        assert row["body"].startswith("REDACTED:")
        response = scene.request(
            "POST", f"/v2/publish/{DEST}", {"Upstash-Redact-Fields": "body,nothing"}
        )
        assert (response.status, response.error) == (
            400,
            "invalid redact field: 'nothing', expected body, header or header[<name>]",
        )
