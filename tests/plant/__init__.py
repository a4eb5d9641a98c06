"""Known bugs, planted to see that the tests catch them."""
