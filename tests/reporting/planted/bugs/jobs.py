import pytest
import redis
import rq


def import_row(url, row):
    name, count = row.split(",")
    connection = redis.Redis.from_url(url)
    connection.hset("articles", name, count)
    connection.incrby("imported", int(count))
    connection.close()


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_all_rows_are_imported(kv_server):
    connection = redis.Redis.from_url(kv_server.database_url)
    queue = rq.Queue("imports", connection=connection)
    for row in ("tea,5", "cups,7", "tea,3"):
        queue.enqueue(import_row, kv_server.database_url, row)
    rq.SimpleWorker([queue], connection=connection).work(burst=True)
    articles = kv_server.hash("articles")
    assert sum(map(int, articles.values())) == kv_server.integer("imported")
