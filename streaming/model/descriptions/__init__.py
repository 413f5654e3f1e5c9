"""What an administrator sees who asks every coordinator: groups and transactions."""
