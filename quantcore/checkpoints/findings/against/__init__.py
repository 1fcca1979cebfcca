"""What only a comparison with the original shows: weights, scales, zero points and codes that are wrong, and why.

Where things are: `grid` (what codes mean, in steps), `measure` (what one walk over a weight gathers), `nearest` (whether codes
were rounded to nearest), `rescaled` (what AWQ multiplies), `judge` (which weights are wrong, by their siblings and by
rounding, and why), `suspect` (a wrong weight, in memory), `orders`, `numbers` and `others` (hypotheses on the cause),
`global_scales` and `places` (single scales and codes), `plain` (weights that are stored as their values).
"""
