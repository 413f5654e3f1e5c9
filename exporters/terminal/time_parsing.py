"""Times as people write and read them."""

from exporters.read_model.moments import SECOND, Clock, day_of, micros_of, span

__all__ = ["SECOND", "Clock", "day_of", "micros_of", "span"]
