"""The playoff: the best few and the default once more, in turns, and what that says of them."""
