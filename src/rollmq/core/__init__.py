"""What happens to a job, decided. Pure: no IO, no clock, no randomness, no tasks, no logging."""
