"""History on Spark: the log becomes tables, answers and proof. It changes nothing in a queue."""
