"""What a query does as a stream: where it streams, what Spark keeps as state, and what Spark refuses."""
