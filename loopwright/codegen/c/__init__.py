"""Target ``c`` and the writers that any language of its family can build on."""
