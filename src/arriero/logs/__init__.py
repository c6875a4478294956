"""Log text of any era → events → failure, buffers, notices."""
