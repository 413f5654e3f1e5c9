"""The configuration of Sphinx: MyST for Markdown, Furo for the looks; ``docs.builder`` runs it."""

from __future__ import annotations

project = "isrwatch"
html_title = "isrwatch"
extensions = ["myst_parser"]
html_theme = "furo"
# Nothing is loaded from elsewhere, and no page says how it was made.
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
# An option begins with two hyphens, and not with a dash.
smartquotes = False
# A block without a language is what a terminal shows.
highlight_language = "none"
# The anchors of headings are those that a forge gives them, so that links work in both places.
myst_heading_anchors = 4
# Pages begin with another level than the first where they are part of a file, and tables have code as their heading.
suppress_warnings = ["myst.header"]
