"""Results as one line of text, and as cards of HTML for notebooks: Jupyter, marimo, and pages that strip styles.

What is shown is found by the name of a result's class, so that nothing is imported before there is such a result.
"""

from quantcore.notebook.cards import card
from quantcore.notebook.lines import line

__all__ = ["card", "line"]
