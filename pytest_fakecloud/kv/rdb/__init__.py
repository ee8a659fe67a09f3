"""The RDB format of Redis and Valkey: payloads of DUMP and FUNCTION DUMP, and ``.rdb`` files."""
