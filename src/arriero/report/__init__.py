"""Records laid out for people: terminal, Markdown, one HTML page, and an upstream bug report.

:mod:`~arriero.report.view` turns a document into ordered facts once; every output only lays these
facts out, so that no two outputs can disagree. Nothing here redacts: for sharing, the caller
redacts the document first.
"""
