"""A fake log broker: topics, partitions, consumer groups, behind the REST face of a hosted Kafka.

``log`` and ``partitioning`` keep the records, ``groups`` and ``assignment`` the consumer groups,
``engine`` puts both together, ``routes`` is the HTTP face, ``handle`` what a test gets.
"""
