"""One table, sharded tables, and their policies: admission, eviction, restriction."""
