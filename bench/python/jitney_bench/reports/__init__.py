"""What is said of a measurement: the document, lines on the terminal, a page, a comparison."""
