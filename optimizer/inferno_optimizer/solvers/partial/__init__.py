"""The exact solver where a server may be served in part: any number of whole replicas."""
