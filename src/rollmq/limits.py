"""Every bound of rollmq, its unit in its name, its reason beside it. Nothing else may hold a bound."""
