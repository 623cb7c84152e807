"""How an epsilon comes about. Read in this order:

1. `accounting`: from laws of shifts to an epsilon;
2. `premises`, `positions`: what a promise rests on, and devices that are alike for it;
3. `sight`: who reads what, one table;
4. `releases`: the lines of a ledger, the noise in each, and accounts of how often it counts;
5. `ledger`: all lines of a run, and the largest epsilon over the distrusted;
6. `calibration`: the least noise that keeps the target.

`mechanisms` says what is clipped and where noise is drawn, `taint` how far a record moves what is
released under `upload`, `variance` how noise adds up. `summary` puts the promise into words.
"""
