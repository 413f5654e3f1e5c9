"""``python -m streaming.commands`` is ``isrwatch``, wherever the script was installed."""

from streaming.commands import main

main()
