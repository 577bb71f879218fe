"""Lineage and hierarchy as SVG pictures, and the layout of their boxes."""
