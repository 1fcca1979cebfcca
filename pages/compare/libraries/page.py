"""Libraries: why do two of them give different integers for the same tensor?"""

from pages.compare.libraries import controls, views
from pages.shared.page_frame import page_frame

with page_frame(
    "Why do two libraries give different integers?",
    "The tensor and the scheme on the left, computed as each library computes them, bit for bit. Library A begins as "
    "the one chosen on the left.",
) as frame:
    a, b = controls.draw()
    tensor, scheme = frame.chosen.tensor, frame.chosen.scheme
    if tensor is not None and scheme is not None and not views.refusals(tensor, scheme, a, b):
        views.table(tensor, scheme, a)
        views.side_by_side(tensor, views.comparison(tensor, scheme, a, b))
