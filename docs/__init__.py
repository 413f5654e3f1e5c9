"""The documentation: pages in Markdown, and the builder that makes a site of them."""
