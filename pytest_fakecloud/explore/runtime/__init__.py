"""What explored code runs in: strands, event loops, sockets, and who waits for whom."""
