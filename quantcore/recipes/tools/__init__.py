"""One module per tool: the schemes it has, and how its files name tensors."""
