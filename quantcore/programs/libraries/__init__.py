"""One module per library that computes something which no other does: its lines of a program."""
