"""The server: the asyncio host of one replica, its connections and its housekeeping."""
