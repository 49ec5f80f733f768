"""Functions of floats written in the IR itself, one definition for every target."""
