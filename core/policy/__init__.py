"""The policy of an environment: what it allows, denies or allows only with an approval, and when plans are frozen."""
