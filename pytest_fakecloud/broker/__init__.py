"""A fake of the Upstash Kafka REST API with topics, partitions and consumer groups.

``engine`` is the broker in memory, and ``kafka`` runs the same operations on a real cluster.
``routes`` implements the REST API, and ``fake`` contains the object that the ``broker`` fixture
returns.
"""
