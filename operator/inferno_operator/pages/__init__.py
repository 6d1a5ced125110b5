"""What pages and pictures are made of."""
