"""Speed on this machine, and the paper's experiments on solvers: `gromap bench`, `gromap bench
paper`."""
