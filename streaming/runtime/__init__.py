"""Requirements besides Python: a Java, the jars, and trust in the company's certificates."""
