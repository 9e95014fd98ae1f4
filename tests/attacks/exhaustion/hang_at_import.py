# specimen: class=hang task=gelu device=any stage=load reason=timeout
"""Never finishes its import."""
import time

while True:
    time.sleep(1)
