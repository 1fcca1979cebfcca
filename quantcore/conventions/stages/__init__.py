"""The choices of a convention: one record per stage of the arithmetic."""
