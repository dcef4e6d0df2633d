"""HTTP: paths, headers and status codes around the handlers."""
