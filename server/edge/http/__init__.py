"""HTTP: routes, middleware, and status codes around the data plane."""
