"""What the unit tests share: searched examples without a clock."""

from hypothesis import settings

# Tests run side by side on machines of any speed: the time of an example says nothing.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
