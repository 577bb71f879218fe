"""The words that everything else is made of: names, states, table formats, actions, reasons, errors and problems."""
