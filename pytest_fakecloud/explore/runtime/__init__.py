"""The runtime of explored code: strands, event loops, sockets and the diagnosis of deadlocks."""
