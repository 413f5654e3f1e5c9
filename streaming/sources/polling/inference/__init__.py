"""Rules of polling, without IO: which question is due, and what follows from the answers."""
