"""The project on disk and in git: selection of project and environment, declaring files, SQL texts."""
