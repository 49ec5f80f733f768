"""The nodes of graphs, their types, and walks over them."""
