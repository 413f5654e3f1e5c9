"""The pipeline of isrwatch: observations in, Delta tables out.

real cluster ── sources ─┐
├─► observations ─► bus ─► jobs ─► Delta tables ─► exporters
model ── simulated source┘   (contracts)           (changes, delta)
"""
