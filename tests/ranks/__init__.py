"""Several real processes over gloo, which must give the results of one."""
