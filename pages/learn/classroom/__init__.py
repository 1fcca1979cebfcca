"""A class that predicts codes, scales and zero points together: its questions, and what its answers show."""
