"""The routes of the application, one router per API."""
