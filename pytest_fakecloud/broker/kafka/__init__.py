"""The same broker over a real Kafka cluster (extra ``kafka``)."""
