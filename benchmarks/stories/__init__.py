"""The five stories that this project started from: their servers, as their authors described them, and jitney."""
