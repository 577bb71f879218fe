"""The terminal below Textual: bytes to keys, cells to bytes, the driver, the first frame."""
