"""What all controllers share: leader election, informer, cache, work queue and write guard."""
