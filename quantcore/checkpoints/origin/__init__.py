"""Where one element of a checkpoint comes from: its bits in the file, and the arithmetic to its value.

>>> found = origin(tensor, (3, 17))  # doctest: +SKIP
>>> for line in found.lines:  # doctest: +SKIP
...     print(line)

Where things are: `words` (bits and whose they are), `stored_number` (what they mean), `expression` (text and number
of a formula at once), `arithmetic` and `blocks` (from stored numbers to the value), `readings` (what other libraries
make of the same bytes), `rivals` (their values beside this one), `script` (the same in NumPy).
"""
