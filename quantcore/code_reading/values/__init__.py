"""What the names and expressions of a snippet stand for, and what operations make of it."""
