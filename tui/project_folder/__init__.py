"""The project on disk and in git: selection of project and environment, files that declare tables, SQL."""
