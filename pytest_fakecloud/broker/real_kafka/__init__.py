"""The broker engine on a real Kafka cluster (extra ``kafka``)."""
