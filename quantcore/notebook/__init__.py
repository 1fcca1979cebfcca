"""Results as one line of text, and as cards of HTML for notebooks: Jupyter, marimo, GitHub's view of them.

What writes a result is found by the name of its class: nothing is imported before there is such a result.
"""

from quantcore.notebook.cards import card
from quantcore.notebook.lines import line

__all__ = ["card", "line"]
