"""Releases in which a word holds one code from each of several equal parts of the rows: HQQ, optimum-quanto, BitNet."""
