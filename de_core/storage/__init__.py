"""Tables whose rows are stored outside this process, for example in Redis."""
