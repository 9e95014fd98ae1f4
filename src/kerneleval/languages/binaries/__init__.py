"""What compiled files say: ELF, cubins, and the instructions of each vendor. Read as data; nothing is run."""
