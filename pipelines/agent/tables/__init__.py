"""Tables as the agent meets them: entries in the pool's catalog, identities, inputs that others write."""
