"""The values that a snippet computes with, as far as they are known, and operations on them."""
