"""Objects of files instead of a cluster's: documents, manifests, and the System they describe."""
