"""Read objects from files instead of a cluster: documents, manifests, and their System."""
