"""Widgets of the console on Textual's Line API; what they show comes from `tui.presentation`."""
