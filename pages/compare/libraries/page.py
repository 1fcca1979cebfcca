"""Libraries: why do two of them give different integers for the same tensor?"""

from pages.compare.libraries import controls, views
from pages.shared.page_frame import page_frame

with page_frame(
    "Why do two libraries give different integers?",
    "The scheme on the left, applied to the tensor on the left exactly as each library computes it. Library A defaults "
    "to the one chosen there, if possible.",
) as frame:
    a, b = controls.draw()
    tensor, scheme = frame.chosen.tensor, frame.chosen.scheme
    if tensor is not None and scheme is not None and not views.refusals(tensor, scheme, a, b):
        views.table(tensor, scheme, a)
        views.side_by_side(tensor, views.comparison(tensor, scheme, a, b))
