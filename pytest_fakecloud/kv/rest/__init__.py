"""The REST interface: HTTP words in, commands to the engine, envelopes and event streams out."""
