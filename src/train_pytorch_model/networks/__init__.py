"""Networks and their weights before they are trained: read, fetched, begun from scratch, tried on shapes."""
