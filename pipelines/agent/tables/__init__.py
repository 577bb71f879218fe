"""Tables from the agent's point of view: catalog entries, identities of tables, and inputs that others write."""
