"""The calibration controller: parameters of models from what their replicas do."""
