"""The queue that users put into their own tests."""
