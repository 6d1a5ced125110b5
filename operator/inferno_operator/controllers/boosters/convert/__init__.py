"""Convert a booster to the manifests of its children; pure."""
