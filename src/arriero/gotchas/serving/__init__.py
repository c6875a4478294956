"""Failures and surprises once the server listens."""
