"""The words that everything else is made of: names, states, actions, reasons, errors and problems."""
