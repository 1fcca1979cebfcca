"""Questions about a scheme's arithmetic: tensors to practice on, grading, and the likely error behind an answer."""
