"""The ``incidents`` table, and the rows of the change log that incidents are made of."""
