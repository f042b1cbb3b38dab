"""Begins its work and breaks down."""

import sys

from contract import say

say("text", text="I try.")
sys.exit("it can't be done")
