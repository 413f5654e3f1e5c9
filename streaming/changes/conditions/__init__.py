"""The spells of conditions: what is wrong with a cluster, from when until when, row by row of the change log."""
