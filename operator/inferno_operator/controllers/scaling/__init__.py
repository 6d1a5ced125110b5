"""Scale what runs Servers, in an order that never uses more cards than there are, and report it."""
