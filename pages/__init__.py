"""The browser app.

- ``explore``, ``compare``, ``models``, ``learn``: a section each, with a folder for each page, and what its pages share;
- ``sidebar``, ``maps``, ``shared``, ``browser``: what pages are made of;
- ``serving``: what surrounds them: settings, middleware, memory and the queue for heavy work, stores and hosts;
- ``registry``: finds all pages; ``main.py``: what runs on every page.
"""
