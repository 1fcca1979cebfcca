"""Heavy work of a run: cached, in its turn, within the memory that it needs."""
