"""The demo: two workers, some hundred workflows, one worker killed, and the promises measured.

plan      which locks, which orders          work      the workflow and its activities
worker    a worker process                   journal   what it notes down, and outlives it
crew      starts, kills and ends them        record    the notes of all, put together
promises  what was promised against it       timeline  the same as a picture
view      what a person sees meanwhile       run       the whole
"""
