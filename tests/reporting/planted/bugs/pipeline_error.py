import httpx
import pytest


def book(kv, seat, user):
    answer = httpx.post(
        f"{kv.url}/pipeline",
        headers=kv.headers,
        json=[
            ["SET", f"seat:{seat}", user],
            ["LPUSH", "bookings", f"{seat}:{user}"],
            ["INCR", f"seat:{seat}"],
            ["EXPIRE", f"seat:{seat}", "600"],
        ],
    )
    return answer.status_code == 200


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_booking_is_counted(kv_server):
    assert book(kv_server, "4A", "ada")
    assert kv_server.value("seat:4A:count") == "1"
