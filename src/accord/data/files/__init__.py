"""Files of data sets: where they lie, how they are fetched, and what is in them."""
