"""One module per library, of the same name as its scripts in `quantcore.snippets.libraries`."""
