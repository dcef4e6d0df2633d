"""Tables, their shards, and their policies: admission, eviction, restriction."""
