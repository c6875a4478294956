"""Each document as facts in words, worked out once, so that no two outputs can disagree.

Which words name a failure, which trials tell most, whether a product may be claimed: all of it is
decided here. Sizes carry their unit; numbers that are not plainly measured carry their method; what
nothing showed is said to be unknown.
"""
