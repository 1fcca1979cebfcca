"""What a visitor has chosen, and the link that carries it."""
