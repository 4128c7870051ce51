"""Figures of a match, which need `pip install 'gromap[plot]'`, and its report, a web page, which
needs nothing else."""
