"""Screens of the console, as a Textual application: they compose, bind and forward, and never wait for anything."""
