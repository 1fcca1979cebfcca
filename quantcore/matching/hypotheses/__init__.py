"""What may have produced the codes: schemes, sources of scales, mistakes; each is tried on a sample first."""
