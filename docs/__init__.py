"""The documentation: pages in Markdown, and the builder that makes a site of them.

- ``builder``  renders the references from the code and runs Sphinx
- ``conf``     the configuration of Sphinx
"""
