"""The RDB format of Redis and Valkey: payloads of DUMP and FUNCTION DUMP, and ``.rdb`` files.

This package converts between byte strings and the classes of ``kv/values``; it opens no files.
``payload`` and ``file`` are the two entry points. ``reader`` and ``writer`` handle the values,
``listpack`` and ``ziplist`` the packed structures in them, ``source`` and ``lzf`` lengths and
strings.
"""
