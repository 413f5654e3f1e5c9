"""``python -m streaming.commands`` is ``isrwatch``."""

from streaming.commands import main

main()
