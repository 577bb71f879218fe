"""What is declared, as frozen values: project, environments, tables, settings, and the revision of one statement."""
