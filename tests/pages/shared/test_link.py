"""What pages write into their links where Streamlit does not."""

from streamlit.testing.v1 import AppTest


def _page():
    from pages.shared.state import link

    link.write_bound("each", "b")


def test_what_a_control_shows_is_written_into_the_link():
    for before in ({}, {"each": "a"}, {"each": "b"}):
        at = AppTest.from_function(_page)
        at.query_params.update(before)
        at.run()
        assert not at.exception
        assert at.query_params["each"] == "b", before
