"""Documents of the REST API, and the answers of other optimizers."""
