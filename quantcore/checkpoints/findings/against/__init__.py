"""What only a comparison with the original shows: which weights, scales and codes are wrong, and why.

Where things are: `grid` (what codes mean, in steps, and whether they were rounded to nearest), `measure`
(what one walk over a weight gathers), `changes` (what is changed on purpose, such as what AWQ multiplies),
`judge` (which weights are wrong, by their siblings and by rounding, and why), `suspect` (a wrong weight, in
memory), `orders` and `numbers` (hypotheses on the cause), `global_scales` and `places` (single scales and
codes).
"""
