"""Fields of the built-in kinds: what they are called, what they hold, how lists merge."""
