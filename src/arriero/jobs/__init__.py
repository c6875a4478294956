"""One module per command. This is the Python API: each puts the rooms together and returns records."""
