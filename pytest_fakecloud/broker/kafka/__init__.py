"""The engine that runs the broker's operations on a real Kafka cluster (extra ``kafka``)."""
