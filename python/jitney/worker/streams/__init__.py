"""Models that answer in parts: what they yield becomes parts on the link, or whole answers. Runs in workers."""
