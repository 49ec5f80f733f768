"""What the documentation adds to Sphinx, and checks on the built site."""
