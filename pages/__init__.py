"""The browser app.

- ``explore``, ``compare``, ``models``, ``learn``: a section each, with a folder per page, and what pages
  share;
- ``sidebar``, ``maps``, ``shared``, ``browser``: what pages are made of;
- ``serving``: what surrounds them: settings, middleware, memory, the queue for heavy work, stores, hosts;
- ``registry``: finds all pages; ``main.py``: what runs on every page.
"""
