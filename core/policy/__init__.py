"""What an environment allows, what it denies or allows only with an approval, and when plans are frozen."""
