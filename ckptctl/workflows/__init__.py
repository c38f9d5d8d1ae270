"""What each command does, through ports."""
