"""The second engine: the same broker over a real Kafka cluster (extra ``kafka``)."""
