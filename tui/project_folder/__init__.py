"""The project on disk and in git: which project and environment, declaring files, SQL texts, files people name."""
