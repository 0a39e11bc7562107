"""A deterministic world in which the real run machine, loop, journal and store carry thousands of
simulated sessions through months, in seconds. Only the rim is replaced: processes, terminals,
files, providers and clocks.

How it works:

1. A world is a machine with a few sessions of one user (`world`). Everything random in it comes
   from its seed, and nothing depends on wall time, threads or the order of a hash.
2. Faults are planned before a world begins (`faults`), each at its own time. Each world leaves
   some kinds of them out (swarm testing), because one kind of fault can hide what another breaks.
3. After every step the invariants are checked (`invariants`). A world that breaks one is played
   again with fewer faults and less time, until nothing can be left out, and told as a story
   (`shrink`).
4. Headless sessions run the real `Loop` turn by turn (`headless`), also as tasks of the real queue
   and worker (`queued`). Sessions in a terminal run the real daemon, with its handoffs and its
   decisions on resuming (`terminals`).
"""
