"""The papers' experiments: what they are, as data; what was run of them, as records; and both side by side.

    accord reproduce ufo-t1 --scale smoke           on a machine without typer: python -m accord.papers ufo-t1 ...

`settings/` holds the federations (data, division, network, local work), `experiments/` a file per table or figure: rows
and columns with the papers' printed numbers. `shelf` reads both, `wanted` says which runs they come to, `desk` carries
them out, `records` keeps what is worth keeping and finds it again by its configuration, `table` puts our numbers beside
the printed ones, `pages` and `figures` write the result pages.
"""
