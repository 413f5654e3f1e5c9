"""The launcher for spark-submit: ``spark-submit deploy/spark/main.py --config conf/isrwatch.toml``.

The same as ``isrwatch job``, error messages and exit codes included. It is the only file of its folder, because
spark-submit puts that folder first on the path.
"""

import sys

from streaming.commands import main

if __name__ == "__main__":
    main(["job", *sys.argv[1:]])
