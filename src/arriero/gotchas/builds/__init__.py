"""Failures of some builds and no others, as reports tell them: ranges with their source."""
