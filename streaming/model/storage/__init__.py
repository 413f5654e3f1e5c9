"""What a broker stores on disk: logs, and what survives a crash.

- ``records``         sets of records as ranges
- ``batch``           a batch with producer, keys or a transaction marker
- ``log``             offsets and leader epochs of one replica's log
- ``truncation``      where a follower's log diverges from its leader's
- ``segments``        the files of a log, and how a topic configures them
- ``retention``       what a log may delete
- ``compaction``      what a compacted log keeps
- ``producer_state``  producers of a log: sequences, epochs, open and aborted transactions
- ``replica``         one replica: its log and its high watermark
- ``disk``            what survives the process, and the loss of power
- ``log_dirs``        the log directories of a broker, one per disk
"""
