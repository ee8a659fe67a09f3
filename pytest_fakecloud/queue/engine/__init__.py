"""The queue's state machine: what is due, who may start, and what an answer means."""
