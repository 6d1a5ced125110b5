"""The Model Booster controller: a ModelBooster becomes the objects that serve its model."""
