"""Builds the documentation: ``python -m docs.builder``, which is ``make docs``.

Pages that people write are Markdown in ``docs/`` and beside what they describe; the references are rendered from the
code when the site is built, and by ``make generated`` into ``docs/reference``, for readers of a checkout, as the table
of alerts is into the runbook. All of them are written into one folder, with their links turned into those of the site,
and Sphinx makes HTML of it. A link, an anchor or a page that is missing fails the build.

- ``pages``          which files are pages, and where each is in the site
- ``links``          turns links between files into links of the site
- ``build``          writes all pages and runs Sphinx
- ``references``     the pages that are rendered, by their place in the site
- ``alerts``         the table of alerts in the runbook
- ``api``            the paths, parameters and rows of the JSON API
- ``changelog``      the changelog, with what is not released yet
- ``command_line``   every command with its arguments and options
- ``configuration``  every key of the configuration
- ``metrics``        every metric
- ``statements``     what ``isrwatch explain`` prints
- ``event_values``   what each cause and class of incidents means
- ``markdown``       tables and text in Markdown
"""
