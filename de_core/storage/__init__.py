"""Tables whose rows lie outside this process, behind a store such as Redis."""
