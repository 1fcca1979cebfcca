"""What a card of a notebook says where its styles and pictures are removed."""

from html.parser import HTMLParser


class Text(HTMLParser):
    """What is left of a card where styles, classes, SVG and inline images are removed: GitHub does so."""

    def __init__(self, card: str) -> None:
        super().__init__()
        self.inside, self.texts, self.tags, self.styles = 0, list[str](), set[str](), list[str]()
        self.feed(card)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.inside += tag == "svg"
        assert {name for name, _ in attributes} & {"class", "id", "onclick", "onload"} == set()
        self.styles += [value or "" for name, value in attributes if name == "style"]

    def handle_endtag(self, tag):
        self.inside -= tag == "svg"

    def handle_data(self, data):
        self.texts += [] if self.inside else [data]
