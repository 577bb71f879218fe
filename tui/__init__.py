"""Console and command line: the only side that people see; never imports pipelines."""

VERSION = "0.1.0"
