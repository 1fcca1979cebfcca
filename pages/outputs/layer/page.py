"""Layer: what quantization does to a layer's output, and which products carry its error."""

import streamlit as st

import quantcore as qc
from pages.outputs.layer import controls, pictures, run, tabs, views
from pages.shared import charts, messages
from pages.shared.page_frame import page_frame
from pages.shared.state.selection import NoTensorYet
from pages.sidebar import unsupported

with page_frame(top=lambda chosen: charts.small_print(chosen.words)) as frame:
    tensor, scheme = frame.chosen.tensor, frame.chosen.scheme
    answer_place = st.container(key=pictures.ANSWER)
    if tensor is not None and scheme is not None:
        done = None
        try:
            task = run.LayerTask(tensor, scheme, controls.draw(tensor.shape))
            task.check()
            if unsupported.result(tensor, scheme) is not None:
                done = run.run(task)
        except NoTensorYet as waiting:
            messages.hint(str(waiting))
        except qc.QuantError:  # which the frame shows
            answer_place.html(views.question())
            raise
        if done is None:
            answer_place.html(views.question())
        if done is not None:
            answer_place.html(views.summary(done, task.choices.given.words))
            maps_place = st.container(key="ly_maps", gap="xxsmall")
            at = controls.chosen(done.found)
            with maps_place:
                pictures.draw(task, done, at, frame.chosen)
            with st.container(key=pictures.TABS):
                tabs.draw(task, done, at)
