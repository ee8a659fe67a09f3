"""A fake of QStash, an HTTP message queue with delayed delivery, retries, callbacks and schedules."""
