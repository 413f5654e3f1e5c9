"""Builds the documentation: ``python -m docs.builder``, which is ``make docs``.

Pages that people write are Markdown in ``docs/`` and next to what they describe; the references are rendered from the
code when the site is built, and by ``make generated`` into ``docs/reference``, for readers of a checkout, as the table
of the alerts of before is into their runbook. All of them are written into one folder, with their links turned into
those of the site, and Sphinx makes HTML of it. A link, an anchor or a page that is missing fails the build.
"""
