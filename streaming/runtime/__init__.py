"""What isrwatch needs beside Python: a Java, the jars, and trust in the company's certificates.

Everything is found or fetched once into one cache folder and only looked up from then on:

- ``folders``     the cache folder, one process at a time in it
- ``java``        the Java that Spark and the sandbox run on
- ``truststore``  the certificate authorities of the environment, in Java's form
- ``lockfile``    which jars, by coordinate and SHA-256
- ``ivy``         the resolver that pyspark's wheel carries, run as a program
- ``listening``   the socket that a server of ours listens on
- ``jars``        the jars on this disk
"""
