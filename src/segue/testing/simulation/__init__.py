"""A deterministic world in which the real run machine, loop, journal and store carry thousands of
simulated sessions through months, in seconds. Only the rim is replaced: processes, terminals,
files, providers and clocks.

How it works:

1. A world is a machine with a few sessions of one user (`world`). All that is drawn in it comes
   from its seed, and from nothing else: no wall time, no thread, no order of a hash.
2. Faults are planned before a world begins (`faults`), each at its own time. Each world leaves
   some kinds of them out (swarm testing): what two faults hide from each other, one shows.
3. After every step the invariants are checked (`invariants`). A world that breaks one is played
   again with fewer faults and less time, until nothing can be left out (`shrink`), and told as a
   story.
4. Headless sessions run the real `Loop` turn by turn (`headless`); those in a terminal run the
   real handoff machine and the decisions on resuming (`terminal`).
"""
