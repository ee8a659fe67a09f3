"""The broker engine that runs its operations on a real Kafka cluster (extra ``kafka``)."""
