"""The ``incidents`` table, and the rows of the change log from which incidents follow."""
