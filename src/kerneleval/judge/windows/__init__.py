"""Windows: what is revealed to a worker, the workers themselves, and the protocol of one window.

It draws secret inputs, lays them out in shared memory, runs a window and takes the outputs. It decides nothing about
them: ``oracle`` compares, ``timing`` reads the times. Start with ``protocol.py``; ``worker_pool.py`` keeps the workers.
"""
