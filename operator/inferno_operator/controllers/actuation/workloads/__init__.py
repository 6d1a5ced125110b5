"""Scale the workloads that Servers name, in an order that never uses more cards than exist."""
