"""Questions whose answers are a scheme's own arithmetic, tensors to practise on, and how an answer is graded."""
