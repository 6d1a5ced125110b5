"""What is deployed: manifests as they are rendered, and pods as they would run."""
