"""A fake of the Upstash Kafka REST API: topics, partitions, consumer groups.

``log`` and ``partitioning`` store the records, ``groups`` and ``assignment`` the consumer groups,
``engine`` combines both, ``routes`` is the REST API, ``handle`` the object that the fixture
returns.
"""
