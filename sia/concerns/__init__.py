"""What matters persistently: concerns that build up by the clock, are looked at, and fire."""
