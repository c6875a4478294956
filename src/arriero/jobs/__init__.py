"""One module per command, the Python API: each puts the rooms together and returns a record."""
