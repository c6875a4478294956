"""Keeping one engine alive: start, watch, classify, start again, give up."""
