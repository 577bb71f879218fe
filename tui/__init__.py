"""Console and command line, the user interfaces; never imports pipelines."""

VERSION = "0.1.0"
