"""One accelerator for each server, exactly."""
