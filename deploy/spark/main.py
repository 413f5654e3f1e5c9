"""The launcher for spark-submit: ``spark-submit deploy/spark/main.py --config conf/isrwatch.toml``.

Stands alone in its folder, because spark-submit puts that folder first on the path.
"""

import typer

from streaming.commands.job import job

if __name__ == "__main__":
    typer.run(job)
