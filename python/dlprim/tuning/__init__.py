"""Schedules by measurement: the search, and the file that keeps what it found."""
