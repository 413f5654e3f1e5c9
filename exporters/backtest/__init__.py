"""``isrwatch backtest``: which alerts would have fired in the recorded past, under any rules.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``rule_files``  rules as Prometheus reads them, and which of them the recorded past can judge
- ``series``      values at every scrape, as promtool reads them
- ``replay``      what ``/metrics`` showed at every scrape of a time range
- ``evaluation``  promtool evaluates the rules over that
- ``command``     ``isrwatch backtest``
"""
