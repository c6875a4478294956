"""Records laid out for people: terminal, Markdown, one HTML page, and an upstream bug report.

:mod:`~arriero.report.view` turns a document into ordered facts once. Every form has a folder with
one file for each document; behind one :class:`~arriero.report.interface.Layout` it lays these facts
out. Nothing here redacts: for sharing, the caller redacts the document first
(:mod:`arriero.record.sharing`).
"""
