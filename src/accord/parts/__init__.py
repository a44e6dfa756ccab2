"""What two methods or more share: loss terms, frozen models' answers, heads, phases, and the base most of them have."""
