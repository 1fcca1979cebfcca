"""What only a comparison with the original shows: weights, scales, zero points and codes that are wrong, and why.

Where things are: `grid` (what codes mean, in steps), `measure` (what one walk over a weight gathers), `nearest` (whether codes
were rounded to nearest), `ordered` (llama.cpp's order of rows), `rescaled` (what AWQ multiplies), `judge` (which weights are
wrong, by their siblings and by rounding), `suspect` (a wrong weight, in memory), `causes` (the hypotheses, which are in
`orders`, `numbers` and `others`), `places` (single scales and codes), `leak`, `plain` and `said` (findings).
"""
