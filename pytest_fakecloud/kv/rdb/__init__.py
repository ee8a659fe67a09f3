"""The RDB format of Redis and Valkey: payloads of DUMP and FUNCTION DUMP, and ``.rdb`` files.

This package converts between byte strings and the classes of ``kv/values``; it opens no files.
``dumps`` is the entry point. ``reader`` and ``writer`` handle the values, ``packed`` the packed
structures in them, ``source`` and ``lzf`` lengths and strings.
"""
