"""The queue's state machine, without HTTP and threads."""
