"""The user's side of the protocol: sans-IO cores of client and worker, and the asyncio glue under them."""
