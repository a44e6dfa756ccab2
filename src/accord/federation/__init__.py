"""Real federations on Flower: secrets, processes, and who may do what; the methods' side is `accord.flower`."""
