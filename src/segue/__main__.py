"""`python -m segue`."""

from segue.start import main

main()
