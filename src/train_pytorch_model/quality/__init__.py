"""Images that deserve a look: copies, look-alikes, wrong categories, what to label next."""
