"""The Model Booster controller: creates the objects that serve the model of a ModelBooster."""
