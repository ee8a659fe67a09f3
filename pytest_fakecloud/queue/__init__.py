"""Fake of the HTTP message queue, with delayed delivery, retries, ordered queues and schedules."""
