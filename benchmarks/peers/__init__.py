"""Other servers beside jitney: what they are, how they are set up, and what is measured of them."""
