"""The declared project as frozen values: environments, names, tables, settings, and the revision of one statement."""
