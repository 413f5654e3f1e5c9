"""``isrwatch backtest``: which alerts would have fired in the recorded past, under any rules."""
