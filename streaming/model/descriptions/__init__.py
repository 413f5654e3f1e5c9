"""What an administrator sees who asks every coordinator: groups and transactions.

- ``groups``        groups (``Admin.describeConsumerGroups``, ``listOffsets``)
- ``transactions``  transactions, and which of them hang (KIP-664)
"""
