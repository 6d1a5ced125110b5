"""Several accelerators for one server, exactly."""
