"""JSON documents: reading, changing and describing what paths match."""
