"""What each command does, from the beginning to the end."""
