"""Failures of a range of builds: the range as reported, with its source."""
