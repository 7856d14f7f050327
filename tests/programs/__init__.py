"""Each verb, through its command line only."""
