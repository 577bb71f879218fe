"""Styled lines and their widths, number formats, glyphs, palettes, coloured SQL and diffs."""
