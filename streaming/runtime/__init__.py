"""What isrwatch needs beside Python: a Java, the jars, and trust in the company's certificates.

What is fetched is found or fetched once into one cache folder and only looked up from then on:

- ``folders``     the cache folder, used by one process at a time
- ``java``        the Java that Spark and the sandbox run on
- ``truststore``  the certificate authorities of the environment, in Java's format
- ``lockfile``    which jars, by coordinate and SHA-256
- ``ivy``         the resolver that pyspark's wheel carries, run as a program
- ``jars``        the jars on this disk
- ``class_archive``  the classes of a JVM, archived so that the next one starts faster
- ``listening``   the socket that one of our servers listens on
- ``garbage``     when Python's garbage collector may run
- ``memory``      what a process has freed goes back to the system
- ``arrow``       pyarrow without pandas
"""
