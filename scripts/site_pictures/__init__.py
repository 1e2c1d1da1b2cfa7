"""The pictures of the site: SVG files, each drawn from a small table."""
