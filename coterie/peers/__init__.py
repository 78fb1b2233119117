"""Real peers, as a user meets them: one node a process, its run folder, and all of them at once."""
