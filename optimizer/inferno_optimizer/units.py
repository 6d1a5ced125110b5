"""How many of a unit of time there are in another one."""

MS_PER_SECOND = 1000.0
MS_PER_MINUTE = 60_000.0
SECONDS_PER_MINUTE = 60.0
SECONDS_PER_HOUR = 3600.0
