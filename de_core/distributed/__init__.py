"""Tables whose rows are divided among processes that train in step."""
