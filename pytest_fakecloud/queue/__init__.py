"""The queue: HTTP messages delivered later, retried, ordered, scheduled, and reported back."""
