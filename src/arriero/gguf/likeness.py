"""What a file that is not GGUF seems to be."""

from __future__ import annotations

from typing import Final

from arriero.gguf.format import MAGIC

START: Final = 512
"""Bytes that show what a file is."""


def looks_like(start: bytes) -> tuple[str, str]:
    """What a file that is not GGUF seems to be, and what to do about it."""
    again = "download the .gguf file itself"
    convert = "convert it with llama.cpp's convert_hf_to_gguf.py"
    if not start:
        return "it is empty", again
    for prefix, what, hint in (
        (MAGIC[::-1], "its magic is byte-swapped", again),
        (b"lmgg", "it is an old ggml model", convert),
        (b"fmgg", "it is an old ggml model (ggmf)", convert),
        (b"tjgg", "it is an old ggml model (ggjt)", convert),
        (b"algg", "it is an old ggml adapter (ggla)", convert),
        (b"version https://git-lfs", "it is a Git LFS pointer", "run `git lfs pull`"),
        (b"PK\x03\x04", "it is a zip archive or a PyTorch model", convert),
        (b"\x80", "it is a Python pickle, e.g. a PyTorch model", convert),
        (b"\x1f\x8b", "it is gzip-compressed", "unpack it first"),
        (b"\x28\xb5\x2f\xfd", "it is zstd-compressed", "unpack it first"),
    ):
        if start.startswith(prefix):
            return what, hint
    if start[8:9] == b"{" and start[2:8] == bytes(6):
        return "it is a safetensors file", convert
    text = start[:START].lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is a web page", again
    if text.startswith((b"{", b"[")):
        return "it is JSON, perhaps an error message", again
    if not start.strip(b"\0"):
        return "it starts with zeros, like a download that never finished", again
    return f"it starts with {start[:4]!r}", again
