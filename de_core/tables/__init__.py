"""One table, several as one, and the policies that say which rows they hold."""
