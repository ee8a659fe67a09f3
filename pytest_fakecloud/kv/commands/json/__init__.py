"""JSON commands, which read, change and describe the values at a path of a document."""
