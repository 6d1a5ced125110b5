"""What the command lines show to a person, and how they follow what happens in a cluster."""
