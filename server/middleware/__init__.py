"""Pure ASGI middleware: no task and no queue between a request and its handler."""
