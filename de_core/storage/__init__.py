"""Storages: rows of tables outside this process, for example in Redis."""
