"""Tables in the agent: their catalog entries and identities, and inputs that other systems write."""
