"""From the text of a snippet to its quantizers: its syntax tree is walked, nothing is executed."""
