"""What callers pass, checked: arrays, numbers, names; each refusal is a sentence about one."""
