"""Screens of the console: they compose, bind and forward, and never wait for anything."""
