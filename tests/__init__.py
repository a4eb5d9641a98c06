"""The proof: scenarios, properties, seeded storms, and the rules that keep the house."""
