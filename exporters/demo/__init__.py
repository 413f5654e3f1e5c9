"""``isrwatch demo``: the whole pipeline on a simulated cluster, one process per part, watched live."""
