"""Basic vocabulary of all packages: names, states, table formats, actions, reasons, errors and problems."""
