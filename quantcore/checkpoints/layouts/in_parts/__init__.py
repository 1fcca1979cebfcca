"""Releases whose words hold codes from equal parts of the rows: HQQ, optimum-quanto, BitNet."""
