"""Where two libraries differ, where one differs from the textbook, and why."""

from quantcore.comparison.against_textbook import differences
from quantcore.comparison.compared import Comparison, Reason, compare
from quantcore.comparison.table import library_table
