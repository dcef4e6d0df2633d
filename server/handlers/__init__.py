"""What each request does, between bytes in and bytes out; knows no HTTP."""
