"""Bytes to messages and back. Pure: it never touches a socket."""
