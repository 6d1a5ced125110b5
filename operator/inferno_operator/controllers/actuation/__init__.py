"""The actuation controller: writes decisions to ModelBoosters and reports what runs."""
