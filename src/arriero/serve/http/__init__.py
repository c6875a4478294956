"""HTTP/1.1 on both sides: clients in front, the engine behind."""
