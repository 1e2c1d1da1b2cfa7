"""The servers of the stories as their authors described them: what jitney is compared with."""
