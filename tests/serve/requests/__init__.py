"""The life of a request, with an engine, an API and clients that exist in this process alone."""
