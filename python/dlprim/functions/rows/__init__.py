"""Functions of rows: what is not a product, as generated programs."""
