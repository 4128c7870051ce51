"""Pictures of a match; they need `pip install 'gromap[plot]'`."""
