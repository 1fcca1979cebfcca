"""From the text of a snippet to its codes and scales: the syntax tree is walked, nothing is executed."""
