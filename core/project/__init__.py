"""The declared project as frozen values: environments, tables, settings, and the revision of one statement."""
