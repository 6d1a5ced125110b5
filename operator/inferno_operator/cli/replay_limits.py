"""The least and the most that options of replays and settings of studies may be."""

MIN_STEP_S, MAX_STEP_S = 1, 86_400.0
"""Time between two decisions [s]."""

MAX_LEAD_TIME_S, MAX_LEAD_TIME_COV = 86_400.0, 10
"""Time until a replica serves: its mean [s], and its coefficient of variation."""

MAX_SCALE = 1e6
"""Factor of all rates."""

MIN_SLOWER = 0.1
"""Factor of the time that replicas take."""

MAX_ERROR = 0.9
"""Share by which parameters are wrong."""
