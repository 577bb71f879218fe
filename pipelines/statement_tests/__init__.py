"""Unit tests of statements on a Spark server of their own: fixtures as files, one start per part, and written rows."""
