"""Widgets of the console on Textual's Line API; `tui.presentation` provides their contents."""
