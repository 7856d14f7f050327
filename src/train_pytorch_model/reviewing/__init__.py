"""Which images need a decision of a person, and what the page of `review` shows of them."""
